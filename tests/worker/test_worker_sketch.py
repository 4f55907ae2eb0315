"""What the control is made of."""

from __future__ import annotations

from tuner.worker.sketch import collective_bytes, operations_in

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

HLO = """HloModule jit_step

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %r = f32[8]{0} all-reduce(f32[8]{0} %p), replica_groups={{0,1}}, to_apply=%add
  %m = (f32[8]{0}, bf16[2,3]{1,0}) all-reduce-start(f32[8]{0} %r, bf16[2,3]{1,0} %q), to_apply=%add
  %s = (f32[8]{0}, f32[16]{0}) all-gather-start(f32[8]{0} %r), dimensions={0}
  %d = f32[16]{0} all-gather-done((f32[8]{0}, f32[16]{0}) %s)
  %b = pred[5]{0} all-to-all(pred[5]{0} %x), dimensions={0}
  ROOT %c = s4[6]{0} collective-permute(s4[6]{0} %y), source_target_pairs={{0,1}}
}
"""


def test_operations_are_counted_by_name_and_custom_calls_by_target() -> None:
    assert operations_in(LOWERED) == {"add": 2, "scatter": 1, "TopK": 1, "erf": 1}


def test_collectives_count_what_they_give() -> None:
    assert collective_bytes(HLO) == {
        "all-reduce": 32 + 32 + 12,
        "all-gather": 64,
        "all-to-all": 5,
        "collective-permute": 3,
    }


def test_a_module_without_collectives_moves_nothing() -> None:
    assert collective_bytes("ENTRY %main { ROOT %p = f32[8]{0} parameter(0) }") == {}
