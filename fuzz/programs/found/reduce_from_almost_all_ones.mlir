// The init value was taken for all ones, which a double cannot tell from it, and left away.
// inputs: grid:2976229110
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<3xui64>) -> (tensor<ui64>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<3xui64>):
    %1 = "stablehlo.constant"() <{value = dense<18446744073709551614> : tensor<ui64>}> : () -> tensor<ui64>
    %2 = "stablehlo.reduce"(%0, %1) <{dimensions = array<i64: 0>}> ({
    ^bb0(%3: tensor<ui64>, %4: tensor<ui64>):
      %5 = "stablehlo.and"(%3, %4) : (tensor<ui64>, tensor<ui64>) -> tensor<ui64>
      "stablehlo.return"(%5) : (tensor<ui64>) -> ()
    }) : (tensor<3xui64>, tensor<ui64>) -> tensor<ui64>
    "func.return"(%2) : (tensor<ui64>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
