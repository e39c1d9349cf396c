// inputs:
module @iota_of_a_narrow_type_in_tiles attributes {mhlo.num_partitions = 6 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=3, "b"=2]>
  func.func public @main() -> (tensor<1x18xf8E5M2> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"b"}]>}) {
    %0 = stablehlo.iota dim = 1 : tensor<1x18xf8E5M2>
    return %0 : tensor<1x18xf8E5M2>
  }
}
