// inputs: number:3215778805 grid:45969406
module @parameters_on_several_meshes attributes {mhlo.num_partitions = 6 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @wide = <["a"=2, "b"=3]>
  sdy.mesh @deep = <["b"=3, "a"=2], device_ids=[5, 0, 3, 1, 4, 2]>
  sdy.mesh @one = <[], device_ids=[4]>
  func.func public @main(%0: tensor<6x12xf32> {sdy.sharding = #sdy.sharding<@wide, [{"b"}, {"a"}]>}, %1: tensor<6x12xf32> {sdy.sharding = #sdy.sharding<@deep, [{"a"}, {"b"}]>}) -> (tensor<6x12xf32> {sdy.sharding = #sdy.sharding<@deep, [{"b", "a"}, {}]>}, tensor<6x12xf32> {sdy.sharding = #sdy.sharding<@one, []>}) {
    %2 = stablehlo.maximum %0, %1 : tensor<6x12xf32>
    %3 = stablehlo.negate %1 : tensor<6x12xf32>
    return %2, %3 : tensor<6x12xf32>, tensor<6x12xf32>
  }
}
