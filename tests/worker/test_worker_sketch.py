"""What the control is made of."""

from __future__ import annotations

from tuner.worker.sketch import operations_in

LOWERED = """
module @jit_step attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<8xf32>) -> (tensor<8xf32>) {
    %cst = stablehlo.constant dense<1.0> : tensor<f32>
    %0 = stablehlo.add %arg0, %arg0 : tensor<8xf32>
    %1 = "stablehlo.scatter"(%0, %c, %u) <{scatter_dimension_numbers = #stablehlo.scatter<a = [0]>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %9 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %9 : tensor<f32>
    }) : (tensor<8xf32>) -> tensor<8xf32>
    %2 = stablehlo.custom_call @TopK(%1) {x = 1} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = chlo.erf %2 : tensor<8xf32> -> tensor<8xf32>
    return %3 : tensor<8xf32>
  }
}
"""


def test_operations_are_counted_by_name_and_custom_calls_by_target() -> None:
    assert operations_in(LOWERED) == {"add": 2, "scatter": 1, "TopK": 1, "erf": 1}
