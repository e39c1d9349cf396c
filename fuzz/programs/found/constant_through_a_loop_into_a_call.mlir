// inputs: hard:318550245
"builtin.module"() <{sym_name = "constant_through_a_loop_into_a_call"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2, "b"=2], device_ids=[2, 0, 1, 3]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>, tensor<ui32>) -> (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>), sym_name = "main_1", sym_visibility = "private"}> ({
  ^bb0(%0: tensor<5x3x3x1xui32>, %1: tensor<5x3x3x1xui32>, %2: tensor<ui32>):
    %3 = "stablehlo.constant"() <{value = dense<4> : tensor<ui32>}> : () -> tensor<ui32>
    %4 = "stablehlo.broadcast_in_dim"(%3) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %5 = "stablehlo.xor"(%0, %4) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %6 = "stablehlo.add"(%5, %1) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %7 = "stablehlo.constant"() <{value = dense<11> : tensor<ui32>}> : () -> tensor<ui32>
    %8 = "stablehlo.broadcast_in_dim"(%7) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %9 = "stablehlo.xor"(%1, %8) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %10 = "stablehlo.xor"(%9, %6) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %11 = "stablehlo.constant"() <{value = dense<9> : tensor<ui32>}> : () -> tensor<ui32>
    %12 = "stablehlo.broadcast_in_dim"(%11) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %13 = "stablehlo.subtract"(%6, %12) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %14 = "stablehlo.xor"(%13, %10) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %15 = "stablehlo.constant"() <{value = dense<28> : tensor<ui32>}> : () -> tensor<ui32>
    %16 = "stablehlo.broadcast_in_dim"(%15) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %17 = "stablehlo.multiply"(%10, %16) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %18 = "stablehlo.xor"(%17, %14) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %19 = "stablehlo.constant"() <{value = dense<15> : tensor<ui32>}> : () -> tensor<ui32>
    %20 = "stablehlo.broadcast_in_dim"(%19) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %21 = "stablehlo.add"(%14, %20) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %22 = "stablehlo.subtract"(%21, %18) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %23 = "stablehlo.constant"() <{value = dense<9> : tensor<ui32>}> : () -> tensor<ui32>
    %24 = "stablehlo.broadcast_in_dim"(%23) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %25 = "stablehlo.multiply"(%18, %24) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %26 = "stablehlo.subtract"(%25, %22) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %27 = "stablehlo.constant"() <{value = dense<2> : tensor<ui32>}> : () -> tensor<ui32>
    %28 = "stablehlo.broadcast_in_dim"(%27) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %29 = "stablehlo.multiply"(%22, %28) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %30 = "stablehlo.add"(%29, %26) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %31 = "stablehlo.broadcast_in_dim"(%2) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %32 = "stablehlo.multiply"(%26, %31) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %33 = "stablehlo.xor"(%32, %30) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %34 = "stablehlo.broadcast_in_dim"(%2) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %35 = "stablehlo.xor"(%30, %34) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %36 = "stablehlo.subtract"(%35, %33) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %37 = "stablehlo.constant"() <{value = dense<3> : tensor<ui32>}> : () -> tensor<ui32>
    %38 = "stablehlo.broadcast_in_dim"(%37) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %39 = "stablehlo.subtract"(%33, %38) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %40 = "stablehlo.xor"(%39, %36) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %41 = "stablehlo.constant"() <{value = dense<9> : tensor<ui32>}> : () -> tensor<ui32>
    %42 = "stablehlo.broadcast_in_dim"(%41) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %43 = "stablehlo.add"(%36, %42) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %44 = "stablehlo.multiply"(%43, %40) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %45 = "stablehlo.constant"() <{value = dense<19> : tensor<ui32>}> : () -> tensor<ui32>
    %46 = "stablehlo.broadcast_in_dim"(%45) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %47 = "stablehlo.multiply"(%40, %46) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %48 = "stablehlo.add"(%47, %44) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %49 = "stablehlo.constant"() <{value = dense<18> : tensor<ui32>}> : () -> tensor<ui32>
    %50 = "stablehlo.broadcast_in_dim"(%49) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %51 = "stablehlo.subtract"(%44, %50) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %52 = "stablehlo.add"(%51, %48) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %53 = "stablehlo.constant"() <{value = dense<21> : tensor<ui32>}> : () -> tensor<ui32>
    %54 = "stablehlo.broadcast_in_dim"(%53) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %55 = "stablehlo.xor"(%48, %54) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %56 = "stablehlo.multiply"(%55, %52) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %57 = "stablehlo.constant"() <{value = dense<4> : tensor<ui32>}> : () -> tensor<ui32>
    %58 = "stablehlo.broadcast_in_dim"(%57) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %59 = "stablehlo.xor"(%52, %58) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %60 = "stablehlo.add"(%59, %56) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %61 = "stablehlo.broadcast_in_dim"(%2) <{broadcast_dimensions = array<i64>}> : (tensor<ui32>) -> tensor<5x3x3x1xui32>
    %62 = "stablehlo.xor"(%56, %61) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    %63 = "stablehlo.multiply"(%62, %60) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> tensor<5x3x3x1xui32>
    "func.return"(%60, %63) : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<7x66x1xf64>) -> (tensor<ui32>), sym_name = "main", sym_visibility = "public", arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}]>}], res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, []>}]}> ({
  ^bb0(%0: tensor<7x66x1xf64>):
    %1, %2 = "sdy.manual_computation"(%0) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {"b"}, {}]>]>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {}, {"b"}, {}]>, <@mesh, []>]>, manual_axes = #sdy<manual_axes{"a", "b"}>}> ({
    ^bb0(%3: tensor<7x33x1xf64>):
      %4 = "stablehlo.constant"() <{value = dense<0> : tensor<i64>}> : () -> tensor<i64>
      %5 = "stablehlo.constant"() <{value = dense<"0x0F3A343132B93DBE54BF04B4083D5D3E65BE04B87CBDDB3648BAF7BEA33BE0B81F3FABBCA03A343B00BCBDB772BF56BFEFB1213E"> : tensor<13x2xf16>}> : () -> tensor<13x2xf16>
      %6 = "stablehlo.constant"() <{value = dense<"0x000000000500000039000000BC6416D30A000000FAFFFFFF0A000000000000800B0000000B00000040000000FEFFFFFF09000000FAFFFFFFFEFFFFFF0000000024B35BA6FEFFFF7F000000000100008020000000000000000000000000000080FFFFFF7FFFFFFFFF00000080000000010800000000000000FBFFFFFF3F0000008F212C22FDFFFFFF008000000800000000000000FFFFFFFF0000000000000000FDFFFFFF06000000FFFFFF7FFFFFFF7F00000000"> : tensor<5x3x3x1xui32>}> : () -> tensor<5x3x3x1xui32>
      %7, %8, %9, %10 = "stablehlo.while"(%4, %3, %5, %6) ({
      ^bb0(%11: tensor<i64>, %12: tensor<7x33x1xf64>, %13: tensor<13x2xf16>, %14: tensor<5x3x3x1xui32>):
        %15 = "stablehlo.constant"() <{value = dense<5> : tensor<i64>}> : () -> tensor<i64>
        %16 = "stablehlo.compare"(%11, %15) <{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>}> : (tensor<i64>, tensor<i64>) -> tensor<i1>
        "stablehlo.return"(%16) : (tensor<i1>) -> ()
      }, {
      ^bb0(%17: tensor<i64>, %18: tensor<7x33x1xf64>, %19: tensor<13x2xf16>, %20: tensor<5x3x3x1xui32>):
        %21 = "stablehlo.constant"() <{value = dense<1> : tensor<i64>}> : () -> tensor<i64>
        %22 = "stablehlo.add"(%17, %21) : (tensor<i64>, tensor<i64>) -> tensor<i64>
        %23 = "stablehlo.constant"() <{value = dense<5.5000000000000000e+00> : tensor<7x33x1xf64>}> : () -> tensor<7x33x1xf64>
        "stablehlo.return"(%22, %23, %19, %20) : (tensor<i64>, tensor<7x33x1xf64>, tensor<13x2xf16>, tensor<5x3x3x1xui32>) -> ()
      }) : (tensor<i64>, tensor<7x33x1xf64>, tensor<13x2xf16>, tensor<5x3x3x1xui32>) -> (tensor<i64>, tensor<7x33x1xf64>, tensor<13x2xf16>, tensor<5x3x3x1xui32>)
      %24 = "stablehlo.constant"() <{value = dense<"0xFFFFFFFFFFFFFF7FFAFFFFFF040000000D000000000000040E000000FFFFFFFFFDFFFFFFFFFFFFFF000000800F0000000000000003000000000002000E00000000000000FFFFFF7F00000080010000803C00000000000000FBFFFFFFFFFFFFFF0C00000000001000FCFFFFFF110000003F000000060000000C000000FDFFFFFFAD8437CAFEFFFFFF53AB6A5100001000FEFFFFFF0C0000000040000001000080000000000100008000000000FEFFFFFF2F000000"> : tensor<5x3x3x1xui32>}> : () -> tensor<5x3x3x1xui32>
      %25 = "stablehlo.constant"() <{value = dense<153241016> : tensor<ui32>}> : () -> tensor<ui32>
      %26, %27 = "func.call"(%10, %24, %25) <{callee = @main_1}> : (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>, tensor<ui32>) -> (tensor<5x3x3x1xui32>, tensor<5x3x3x1xui32>)
      "sdy.return"(%26, %25) : (tensor<5x3x3x1xui32>, tensor<ui32>) -> ()
    }) : (tensor<7x66x1xf64>) -> (tensor<5x3x6x1xui32>, tensor<ui32>)
    "func.return"(%2) : (tensor<ui32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
