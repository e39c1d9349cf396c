// inputs: range:118705:0:3 range:389853:1:100
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<7x5xi32>, tensor<4x5xi32>) -> (tensor<7x5xi32>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<7x5xi32>, %1: tensor<4x5xi32>):
    %2 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %3 = "stablehlo.select_and_scatter"(%0, %1, %2) <{window_dimensions = array<i64: 3, 2>, window_strides = array<i64: 2, 1>, padding = dense<[[0, 2], [0, 1]]> : tensor<2x2xi64>}> ({
    ^bb0(%4: tensor<i32>, %5: tensor<i32>):
      %6 = "stablehlo.compare"(%4, %5) <{comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%6) : (tensor<i1>) -> ()
    }, {
    ^bb0(%7: tensor<i32>, %8: tensor<i32>):
      %9 = "stablehlo.add"(%7, %8) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%9) : (tensor<i32>) -> ()
    }) : (tensor<7x5xi32>, tensor<4x5xi32>, tensor<i32>) -> tensor<7x5xi32>
    "func.return"(%3) : (tensor<7x5xi32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
