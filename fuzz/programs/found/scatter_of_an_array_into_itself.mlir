// inputs:
module @scatter_of_an_array_into_itself {
  func.func public @main() -> tensor<3xi16> {
    %0 = stablehlo.constant dense<[-2, -2, 12, 0, -1, -3, 0, -2, -6, 19, 4, -5, 0, -32766, -1, 12]> : tensor<16xi16>
    %1 = stablehlo.slice %0 [11:14] : (tensor<16xi16>) -> tensor<3xi16>
    %2 = stablehlo.constant dense<[1, 2, 2]> : tensor<3xui64>
    %3 = "stablehlo.scatter"(%1, %2, %1) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
    ^bb0(%4: tensor<i16>, %5: tensor<i16>):
      stablehlo.return %5 : tensor<i16>
    }) : (tensor<3xi16>, tensor<3xui64>, tensor<3xi16>) -> tensor<3xi16>
    return %3 : tensor<3xi16>
  }
}
