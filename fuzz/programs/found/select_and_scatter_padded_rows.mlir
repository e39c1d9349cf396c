// The host back end cleared rows by the number of windows, which padding makes larger than that of rows.
// inputs: grid:1141225119 grid:2329445106
"builtin.module"() <{sym_name = "fuzz"}> ({
  "func.func"() <{function_type = (tensor<4x5xf32>, tensor<6x7xf32>) -> (tensor<4x5xf32>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<4x5xf32>, %1: tensor<6x7xf32>):
    %2 = "stablehlo.constant"() <{value = dense<0.00000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %3 = "stablehlo.select_and_scatter"(%0, %1, %2) <{window_dimensions = array<i64: 1, 1>, window_strides = array<i64: 1, 1>, padding = dense<[[0, 2], [2, 0]]> : tensor<2x2xi64>}> ({
    ^bb0(%4: tensor<f32>, %5: tensor<f32>):
      %6 = "stablehlo.compare"(%4, %5) <{comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type FLOAT>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      "stablehlo.return"(%6) : (tensor<i1>) -> ()
    }, {
    ^bb0(%7: tensor<f32>, %8: tensor<f32>):
      %9 = "stablehlo.add"(%7, %8) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%9) : (tensor<f32>) -> ()
    }) : (tensor<4x5xf32>, tensor<6x7xf32>, tensor<f32>) -> tensor<4x5xf32>
    "func.return"(%3) : (tensor<4x5xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
