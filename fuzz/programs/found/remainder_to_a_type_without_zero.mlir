// inputs: hard:4139977445 smooth:2356214706
"builtin.module"() <{sym_name = "remainder_to_a_type_without_zero"}> ({
  "func.func"() <{function_type = (tensor<5x6x1x2x8xf32>, tensor<5x6x1x2x8xf32>) -> (tensor<5x6x1x2x8xf8E8M0FNU>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<5x6x1x2x8xf32>, %1: tensor<5x6x1x2x8xf32>):
    %2 = "stablehlo.remainder"(%0, %1) : (tensor<5x6x1x2x8xf32>, tensor<5x6x1x2x8xf32>) -> tensor<5x6x1x2x8xf32> loc("-":9:0)
    %3 = "stablehlo.convert"(%2) : (tensor<5x6x1x2x8xf32>) -> tensor<5x6x1x2x8xf8E8M0FNU> loc("-":12:0)
    "func.return"(%3) : (tensor<5x6x1x2x8xf8E8M0FNU>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
