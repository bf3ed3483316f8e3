// A question of gpu_products: by which ids the records of CUPTI know the kernels in the bodies of conditional nodes,
// and whether its callbacks lead from these to the nodes of the graph that was captured.
#pragma once

namespace probe {

void ids_in_bodies();

}  // namespace probe
