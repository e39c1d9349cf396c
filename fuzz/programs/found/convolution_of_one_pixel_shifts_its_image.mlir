// inputs: grid:2646346510 smooth:2313855975
"builtin.module"() <{sym_name = "convolution_of_one_pixel_shifts_its_image"}> ({
  "func.func"() <{function_type = (tensor<2x7x3xbf16>, tensor<7x4x1xbf16>) -> (tensor<2x4x3xf32>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<2x7x3xbf16>, %1: tensor<7x4x1xbf16>):
    %2 = "stablehlo.convolution"(%0, %1) <{dimension_numbers = #stablehlo.conv<[b, f, 0]x[i, o, 0]->[b, f, 0]>, window_strides = array<i64: 1>, padding = dense<[[1, -1]]> : tensor<1x2xi64>, lhs_dilation = array<i64: 1>, rhs_dilation = array<i64: 1>, window_reversal = array<i1: false>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x7x3xbf16>, tensor<7x4x1xbf16>) -> tensor<2x4x3xf32>
    "func.return"(%2) : (tensor<2x4x3xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
