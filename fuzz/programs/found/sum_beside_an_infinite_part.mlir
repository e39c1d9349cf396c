// inputs: hard:2537556850 range:2819847079:0:1 smooth:1553684495
"builtin.module"() <{sym_name = "sum_beside_an_infinite_part"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2, "b"=4]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{function_type = (tensor<12x1x32x1xcomplex<f32>>, tensor<2x5xui32>, tensor<9x2x1x5x23x1xcomplex<f32>>) -> (tensor<12x1x32x1xcomplex<f32>>), sym_name = "main", sym_visibility = "public", arg_attrs = [{jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}, {"b":(1)2}, {}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {?}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{}, {"a"}, {}, {}, {}, {}]>}], res_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}, {}]>}]}> ({
  ^bb0(%0: tensor<12x1x32x1xcomplex<f32>>, %1: tensor<2x5xui32>, %2: tensor<9x2x1x5x23x1xcomplex<f32>>):
    %3 = "stablehlo.scatter"(%0, %1, %2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 2, 4, 5], scatter_dims_to_operand_dims = [3], index_vector_dim = 2>, indices_are_sorted = false, unique_indices = false}> ({
    ^bb0(%4: tensor<complex<f32>>, %5: tensor<complex<f32>>):
      %6 = "stablehlo.add"(%4, %5) : (tensor<complex<f32>>, tensor<complex<f32>>) -> tensor<complex<f32>> loc("-":9:0)
      "stablehlo.return"(%6) : (tensor<complex<f32>>) -> ()
    }) : (tensor<12x1x32x1xcomplex<f32>>, tensor<2x5xui32>, tensor<9x2x1x5x23x1xcomplex<f32>>) -> tensor<12x1x32x1xcomplex<f32>> loc("-":7:0)
    "func.return"(%3) : (tensor<12x1x32x1xcomplex<f32>>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
