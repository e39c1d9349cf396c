// inputs: grid:3792074121 hard:1064596904 hard:2311946095 hard:1511870849 hard:1479407835 hard:4207423886
"builtin.module"() <{sym_name = "row_of_a_stack_written_past_its_end"}> ({
  "func.func"() <{function_type = (tensor<f16>, tensor<16x1x6xi32>, tensor<4x17x2xf32>, tensor<8x69xi64>, tensor<16x69xi64>, tensor<69x16xi64>) -> (tensor<3x8x16xi64>, tensor<3x8x69xi64>, tensor<i32>, tensor<3xf32>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<f16>, %1: tensor<16x1x6xi32>, %2: tensor<4x17x2xf32>, %3: tensor<8x69xi64>, %4: tensor<16x69xi64>, %5: tensor<69x16xi64>):
    %6 = "stablehlo.convert"(%0) : (tensor<f16>) -> tensor<f8E4M3B11FNUZ>
    %7 = "stablehlo.maximum"(%0, %0) : (tensor<f16>, tensor<f16>) -> tensor<f16>
    %8 = "stablehlo.count_leading_zeros"(%1) : (tensor<16x1x6xi32>) -> tensor<16x1x6xi32>
    %9 = "stablehlo.constant"() <{value = dense<[-3.08906722e+00, 7.81095232e-23, -3.38642709e-02]> : tensor<3xf32>}> : () -> tensor<3xf32>
    %10 = "stablehlo.transpose"(%9) <{permutation = array<i64: 0>}> : (tensor<3xf32>) -> tensor<3xf32>
    %11 = "stablehlo.reshape"(%9) : (tensor<3xf32>) -> tensor<3xf32>
    %12 = "stablehlo.reshape"(%2) : (tensor<4x17x2xf32>) -> tensor<17x4x2xf32>
    %13 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %14 = "stablehlo.constant"() <{value = dense<0> : tensor<3x8x69xi64>}> : () -> tensor<3x8x69xi64>
    %15 = "stablehlo.constant"() <{value = dense<0> : tensor<3x8x16xi64>}> : () -> tensor<3x8x16xi64>
    %16 = "stablehlo.constant"() <{value = dense<0> : tensor<3x8x16xi64>}> : () -> tensor<3x8x16xi64>
    %17, %18, %19, %20, %21 = "stablehlo.while"(%13, %3, %4, %14, %15) ({
    ^bb0(%22: tensor<i32>, %23: tensor<8x69xi64>, %24: tensor<16x69xi64>, %25: tensor<3x8x69xi64>, %26: tensor<3x8x16xi64>):
      %27 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
      %28 = "stablehlo.compare"(%22, %27) <{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%28) : (tensor<i1>) -> ()
    }, {
    ^bb0(%29: tensor<i32>, %30: tensor<8x69xi64>, %31: tensor<16x69xi64>, %32: tensor<3x8x69xi64>, %33: tensor<3x8x16xi64>):
      %34 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
      %35 = "stablehlo.dynamic_slice"(%16, %29, %34, %34) <{slice_sizes = array<i64: 1, 8, 16>}> : (tensor<3x8x16xi64>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x16xi64>
      %36 = "stablehlo.reshape"(%35) : (tensor<1x8x16xi64>) -> tensor<8x16xi64>
      %37 = "stablehlo.dot_general"(%36, %4) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<8x16xi64>, tensor<16x69xi64>) -> tensor<8x69xi64>
      %38 = "stablehlo.add"(%30, %37) : (tensor<8x69xi64>, tensor<8x69xi64>) -> tensor<8x69xi64>
      %39 = "stablehlo.dot_general"(%36, %38) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<8x16xi64>, tensor<8x69xi64>) -> tensor<16x69xi64>
      %40 = "stablehlo.add"(%31, %39) : (tensor<16x69xi64>, tensor<16x69xi64>) -> tensor<16x69xi64>
      %41 = "stablehlo.reshape"(%38) : (tensor<8x69xi64>) -> tensor<1x8x69xi64>
      %42 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
      %43 = "stablehlo.dynamic_update_slice"(%32, %41, %29, %42, %42) : (tensor<3x8x69xi64>, tensor<1x8x69xi64>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x69xi64>
      %44 = "stablehlo.dot_general"(%38, %5) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<8x69xi64>, tensor<69x16xi64>) -> tensor<8x16xi64>
      %45 = "stablehlo.reshape"(%44) : (tensor<8x16xi64>) -> tensor<1x8x16xi64>
      %46 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
      %47 = "stablehlo.dynamic_update_slice"(%33, %45, %29, %46, %46) : (tensor<3x8x16xi64>, tensor<1x8x16xi64>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x16xi64>
      %48 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
      %49 = "stablehlo.dynamic_slice"(%32, %29, %48, %48) <{slice_sizes = array<i64: 1, 8, 69>}> : (tensor<3x8x69xi64>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x69xi64>
      %50 = "stablehlo.reshape"(%49) : (tensor<1x8x69xi64>) -> tensor<8x69xi64>
      %51 = "stablehlo.add"(%38, %50) : (tensor<8x69xi64>, tensor<8x69xi64>) -> tensor<8x69xi64>
      %52 = "stablehlo.dot_general"(%44, %38) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<8x16xi64>, tensor<8x69xi64>) -> tensor<16x69xi64>
      %53 = "stablehlo.add"(%40, %52) : (tensor<16x69xi64>, tensor<16x69xi64>) -> tensor<16x69xi64>
      %54 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
      %55 = "stablehlo.add"(%29, %54) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%55, %51, %53, %43, %47) : (tensor<i32>, tensor<8x69xi64>, tensor<16x69xi64>, tensor<3x8x69xi64>, tensor<3x8x16xi64>) -> ()
    }) : (tensor<i32>, tensor<8x69xi64>, tensor<16x69xi64>, tensor<3x8x69xi64>, tensor<3x8x16xi64>) -> (tensor<i32>, tensor<8x69xi64>, tensor<16x69xi64>, tensor<3x8x69xi64>, tensor<3x8x16xi64>)
    "func.return"(%21, %20, %17, %10) : (tensor<3x8x16xi64>, tensor<3x8x69xi64>, tensor<i32>, tensor<3xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
