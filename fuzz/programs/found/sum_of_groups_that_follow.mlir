// inputs: grid:170896270 grid:556286647
"builtin.module"() <{sym_name = "sum_of_groups_that_follow"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2, "b"=3, "c"=2], device_ids=[1, 4, 5, 8, 2, 3, 9, 7, 0, 6, 10, 11]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<2x4x6xi32>, tensor<7x4x2x6xi32>) -> (tensor<4x6x7xi32>), sym_name = "main", sym_visibility = "public", arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"c"}, {"a"}, {}]>}, {}], res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{?}, {"b"}, {}]>}]}> ({
  ^bb0(%0: tensor<2x4x6xi32>, %1: tensor<7x4x2x6xi32>):
    %2 = "stablehlo.dot_general"(%0, %1) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [1, 2], rhs_batching_dimensions = [1, 3], lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [2]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}> : (tensor<2x4x6xi32>, tensor<7x4x2x6xi32>) -> tensor<4x6x7xi32> loc("-":19:0)
    "func.return"(%2) : (tensor<4x6x7xi32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 12 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
