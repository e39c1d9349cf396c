// inputs: grid:3810170751 range:617305822:-2:10 range:1803102226:-2:18 range:1729924225:0:1
"builtin.module"() <{sym_name = "arc_tangent_of_known_zeros"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=8]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<8x16xui2>, tensor<i32>, tensor<i32>, tensor<8x3x4xi32>) -> (tensor<8x3x4xf16>), sym_name = "main", sym_visibility = "public", arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}, {"a"}]>}, {sdy.sharding = #sdy.sharding<@mesh, []>}, {}, {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}, {}]>}], res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}, {}]>}]}> ({
  ^bb0(%0: tensor<8x16xui2>, %1: tensor<i32>, %2: tensor<i32>, %3: tensor<8x3x4xi32>):
    %4 = "stablehlo.compare"(%0, %0) <{comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type UNSIGNED>}> : (tensor<8x16xui2>, tensor<8x16xui2>) -> tensor<8x16xi1> loc("-":6:0)
    %5 = "stablehlo.convert"(%4) : (tensor<8x16xi1>) -> tensor<8x16xf16> loc("-":8:0)
    %6 = "stablehlo.atan2"(%5, %5) : (tensor<8x16xf16>, tensor<8x16xf16>) -> tensor<8x16xf16> loc("-":9:0)
    %7 = "stablehlo.dynamic_slice"(%6, %1, %2) <{slice_sizes = array<i64: 8, 2>}> : (tensor<8x16xf16>, tensor<i32>, tensor<i32>) -> tensor<8x2xf16> loc("-":10:0)
    %8 = "stablehlo.torch_index_select"(%7, %3) <{dim = 1 : i64, batch_dims = 1 : i64}> : (tensor<8x2xf16>, tensor<8x3x4xi32>) -> tensor<8x3x4xf16> loc("-":11:0)
    "func.return"(%8) : (tensor<8x3x4xf16>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
