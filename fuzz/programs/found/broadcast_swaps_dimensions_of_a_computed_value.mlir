// inputs: hard:3734681001
module @broadcast_swaps_dimensions_of_a_computed_value {
  func.func public @main(%0: tensor<4x3xf32>) -> tensor<3x4x5xf32> {
    %1 = stablehlo.floor %0 : tensor<4x3xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4x5xf32>
    %3 = stablehlo.negate %2 : tensor<3x4x5xf32>
    return %3 : tensor<3x4x5xf32>
  }
}
