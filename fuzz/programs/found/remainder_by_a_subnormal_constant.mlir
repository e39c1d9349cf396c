// inputs: hard:1685200106
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<9x13xbf16>) -> (tensor<9x13xbf16>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<9x13xbf16>):
    %1 = "stablehlo.constant"() <{value = dense<0x8032> : tensor<bf16>}> : () -> tensor<bf16>
    %2 = "stablehlo.broadcast_in_dim"(%1) <{broadcast_dimensions = array<i64>}> : (tensor<bf16>) -> tensor<9x13xbf16>
    %3 = "stablehlo.remainder"(%0, %2) : (tensor<9x13xbf16>, tensor<9x13xbf16>) -> tensor<9x13xbf16>
    "func.return"(%3) : (tensor<9x13xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
