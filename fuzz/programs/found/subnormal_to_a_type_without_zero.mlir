// inputs: hard:114326078
"builtin.module"() <{sym_name = "subnormal_to_a_type_without_zero"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2, "b"=2, "c"=3]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<2x2x18xf32>) -> (tensor<2x2x18xf8E8M0FNU>), sym_name = "main", sym_visibility = "public", res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"b"}, {"a"}, {"c"}]>}]}> ({
  ^bb0(%0: tensor<2x2x18xf32>):
    %1 = "stablehlo.convert"(%0) : (tensor<2x2x18xf32>) -> tensor<2x2x18xf64> loc("-":10:0)
    %2 = "stablehlo.convert"(%1) : (tensor<2x2x18xf64>) -> tensor<2x2x18xf8E8M0FNU> loc("-":11:0)
    "func.return"(%2) : (tensor<2x2x18xf8E8M0FNU>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 12 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
