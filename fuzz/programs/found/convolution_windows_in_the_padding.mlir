// inputs: grid:4255421567 smooth:3225420854
"builtin.module"() <{sym_name = "convolution_windows_in_the_padding"}> ({
  "func.func"() <{function_type = (tensor<3x4x11x6xbf16>, tensor<3x2x1x6xbf16>) -> (tensor<1x3x11x3xbf16>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<3x4x11x6xbf16>, %1: tensor<3x2x1x6xbf16>):
    %2 = "stablehlo.convolution"(%0, %1) <{dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, o, i]->[f, 0, 1, b]>, window_strides = array<i64: 2, 1>, padding = dense<[[0, 3], [0, 1]]> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, false>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<3x4x11x6xbf16>, tensor<3x2x1x6xbf16>) -> tensor<1x3x11x3xbf16>
    "func.return"(%2) : (tensor<1x3x11x3xbf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
