// inputs: number:3215778805
"builtin.module"() <{sym_name = "order_of_subnormals_moved_by_a_sum"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2, "b"=3, "c"=2]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<1x12x17xf32>) -> (tensor<1x12x17xi1>), sym_name = "main", sym_visibility = "public", arg_attrs = [{jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{}, {"c"}, {}]>}]}> ({
  ^bb0(%0: tensor<1x12x17xf32>):
    %1 = "sdy.sharding_constraint"(%0) <{sharding = #sdy.sharding<@mesh, [{"a", "c"}, {}, {}]>}> : (tensor<1x12x17xf32>) -> tensor<1x12x17xf32> loc("-":19:0)
    %2 = "stablehlo.compare"(%1, %0) <{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type TOTALORDER>}> : (tensor<1x12x17xf32>, tensor<1x12x17xf32>) -> tensor<1x12x17xi1> loc("-":20:0)
    %3 = "sdy.sharding_constraint"(%2) <{sharding = #sdy.sharding<@mesh, [{}, {"b"}, {"c"}]>}> : (tensor<1x12x17xi1>) -> tensor<1x12x17xi1> loc("-":21:0)
    "func.return"(%3) : (tensor<1x12x17xi1>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 12 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
