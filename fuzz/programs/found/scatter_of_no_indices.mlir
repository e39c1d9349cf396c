// inputs: smooth:3090129212 range:692522750:-2:1 grid:2482395071
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<1xi64>, tensor<0x3xi32>, tensor<3x1xi64>) -> (tensor<1xi64>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<1xi64>, %1: tensor<0x3xi32>, %2: tensor<3x1xi64>):
    %3 = "stablehlo.scatter"(%0, %1, %2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], index_vector_dim = 0>, indices_are_sorted = false, unique_indices = false}> ({
    ^bb0(%4: tensor<i64>, %5: tensor<i64>):
      %6 = "stablehlo.xor"(%4, %5) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      "stablehlo.return"(%6) : (tensor<i64>) -> ()
    }) : (tensor<1xi64>, tensor<0x3xi32>, tensor<3x1xi64>) -> tensor<1xi64>
    "func.return"(%3) : (tensor<1xi64>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
