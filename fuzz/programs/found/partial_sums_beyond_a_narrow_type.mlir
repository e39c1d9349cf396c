// inputs: smooth:1569600357 grid:4265563052
"builtin.module"() <{sym_name = "partial_sums_beyond_a_narrow_type"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2, "b"=2, "c"=4]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<4x6x2x7x6xf8E4M3B11FNUZ>, tensor<7x6x2x4xf8E4M3B11FNUZ>) -> (tensor<2x6x6x7x7xf8E4M3B11FNUZ>), sym_name = "main", sym_visibility = "public", arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {?}, {}, {}, {?}]>}, {}], res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {"a"}, {}, {}]>}]}> ({
  ^bb0(%0: tensor<4x6x2x7x6xf8E4M3B11FNUZ>, %1: tensor<7x6x2x4xf8E4M3B11FNUZ>):
    %2 = "stablehlo.dot_general"(%0, %1) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [2, 4], rhs_batching_dimensions = [2, 1], lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [3]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<4x6x2x7x6xf8E4M3B11FNUZ>, tensor<7x6x2x4xf8E4M3B11FNUZ>) -> tensor<2x6x6x7x7xf8E4M3B11FNUZ> loc("-":8:0)
    "func.return"(%2) : (tensor<2x6x6x7x7xf8E4M3B11FNUZ>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 16 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
