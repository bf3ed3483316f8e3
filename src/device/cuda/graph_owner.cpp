#include "device/cuda/graph_owner.h"

#include <utility>

#include "base/left_behind.h"

namespace graphsink {
namespace {

// The destructor of a user object, which CUDA calls on a thread of its own.
void CUDART_CB leave_behind(void* owner) {
  LeftBehind::leave(std::unique_ptr<LeftBehind>(static_cast<LeftBehind*>(owner)));
}

}  // namespace

void keep_alive(cudaGraph_t graph, std::shared_ptr<void> owner, Calls& calls) {
  auto kept = std::make_unique<LeftBehind>(std::move(owner));
  cudaUserObject_t object = nullptr;
  calls.check(cudaUserObjectCreate(&object, kept.get(), leave_behind, 1, cudaUserObjectNoDestructorSync),
              "cudaUserObjectCreate");
  (void)kept.release();  // its last reference now leaves it behind
  const cudaError_t code = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (code != cudaSuccess) {
    const cudaError_t released = cudaUserObjectRelease(object, 1);
    if (released != cudaSuccess) log_failure(calls.log, "cudaUserObjectRelease", cudaGetErrorName(released));
  }
  calls.check(code, "cudaGraphRetainUserObject");
}

}  // namespace graphsink
