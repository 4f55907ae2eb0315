"""What parent and worker share: messages, failures and the XLA_FLAGS grammar. Standard library only.

The worker runs under the *user's* interpreter, so nothing here may import a third-party package.
"""
