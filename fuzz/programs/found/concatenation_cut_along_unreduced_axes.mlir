// A concatenation is done under one sharding; where that cuts it along what its result is unreduced along, the result is not.
// inputs: grid:1395000715
"builtin.module"() <{sym_name = "fuzz"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2, "b"=2]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<4x4xui4>) -> (tensor<12x4xui4>), sym_name = "main", sym_visibility = "public", res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}, {"a", "b"}]>}]}> ({
  ^bb0(%0: tensor<4x4xui4>):
    %1 = "sdy.sharding_constraint"(%0) <{sharding = #sdy.sharding<@mesh, [{}, {"b", "a"}]>}> : (tensor<4x4xui4>) -> tensor<4x4xui4> loc("-":7:0)
    %2 = "stablehlo.concatenate"(%0, %1, %1) <{dimension = 0 : i64}> : (tensor<4x4xui4>, tensor<4x4xui4>, tensor<4x4xui4>) -> tensor<12x4xui4> loc("-":8:0)
    %3 = "sdy.sharding_constraint"(%2) <{sharding = #sdy.sharding<@mesh, [{"b"}, {}], unreduced={"a"}>}> : (tensor<12x4xui4>) -> tensor<12x4xui4> loc("-":9:0)
    "func.return"(%3) : (tensor<12x4xui4>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
