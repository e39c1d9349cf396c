// inputs: hard:56047081 grid:377857530 hard:1002132221
"builtin.module"() <{sym_name = "quotient_of_payloads_of_flushed_keys"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=16]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<32x11x1x1xf64>, tensor<32x11x1x1xi32>, tensor<32x11x1x1xui64>) -> (tensor<32x11x1x1xi32>), sym_name = "main", sym_visibility = "public", arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}, {}]>}, {jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}, {}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}, {}]>}], res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}, {}, {}]>}]}> ({
  ^bb0(%0: tensor<32x11x1x1xf64>, %1: tensor<32x11x1x1xi32>, %2: tensor<32x11x1x1xui64>):
    %3 = "sdy.reshard"(%0) <{sharding = #sdy.sharding<@mesh, [{?}, {}, {"a"}, {}]>}> : (tensor<32x11x1x1xf64>) -> tensor<32x11x1x1xf64> loc("-":34:0)
    %4, %5, %6 = "stablehlo.sort"(%3, %1, %2) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%7: tensor<f64>, %8: tensor<f64>, %9: tensor<i32>, %10: tensor<i32>, %11: tensor<ui64>, %12: tensor<ui64>):
      %13 = "stablehlo.compare"(%7, %8) <{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type TOTALORDER>}> : (tensor<f64>, tensor<f64>) -> tensor<i1> loc("-":37:0)
      "stablehlo.return"(%13) : (tensor<i1>) -> ()
    }) : (tensor<32x11x1x1xf64>, tensor<32x11x1x1xi32>, tensor<32x11x1x1xui64>) -> (tensor<32x11x1x1xf64>, tensor<32x11x1x1xi32>, tensor<32x11x1x1xui64>) loc("-":35:0)
    %14 = "stablehlo.divide"(%5, %1) : (tensor<32x11x1x1xi32>, tensor<32x11x1x1xi32>) -> tensor<32x11x1x1xi32> loc("-":41:0)
    "func.return"(%14) : (tensor<32x11x1x1xi32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 16 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
