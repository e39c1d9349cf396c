// inputs: hard:5
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<33xi64>) -> (tensor<33xi64>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<33xi64>):
    %1 = "stablehlo.subtract"(%0, %0) : (tensor<33xi64>, tensor<33xi64>) -> tensor<33xi64>
    %2 = "stablehlo.remainder"(%1, %1) : (tensor<33xi64>, tensor<33xi64>) -> tensor<33xi64>
    "func.return"(%2) : (tensor<33xi64>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
