// User objects: who owns references, and when the destructor runs.
#include <atomic>
#include <thread>

#include "test_support.h"

namespace emu_test::user_object_test {
namespace {

// What a destructor leaves behind. live_objects() returns after the destructors that are due.
struct Destroyed {
  std::atomic<int> times{0};
  std::thread::id thread;
  cudaError_t code = cudaSuccess;

  int count() {
    emu::live_objects();
    return times;
  }
};

void destroy(void* data) {
  auto& destroyed = *static_cast<Destroyed*>(data);
  destroyed.thread = std::this_thread::get_id();
  ++destroyed.times;
}

class UserObjectTest : public EmulatorTest {
 protected:
  cudaUserObject_t make(unsigned references = 1) {
    cudaUserObject_t object = nullptr;
    EXPECT_EQ(cudaSuccess,
              cudaUserObjectCreate(&object, &destroyed_, destroy, references, cudaUserObjectNoDestructorSync));
    return object;
  }
  // A graph with a fill that owns the only reference to an object.
  cudaGraph_t make_owner() {
    cudaGraph_t graph = nullptr;
    cudaGraphNode_t node = nullptr;
    cudaGraphNodeParams params = node_params(cudaGraphNodeTypeMemset);
    params.memset = {device<int>(1), 0, 0, 4, 1, 1};
    EXPECT_EQ(cudaSuccess, cudaGraphCreate(&graph, 0));
    EXPECT_EQ(cudaSuccess, cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
    EXPECT_EQ(cudaSuccess, cudaGraphRetainUserObject(graph, make(), 1, cudaGraphUserObjectMove));
    return graph;
  }

  Destroyed destroyed_;
};

TEST_F(UserObjectTest, IsDestroyedOnceWithTheLastReference) {
  const cudaUserObject_t object = make(2);
  EXPECT_EQ(1u, emu::live_objects().user_objects);
  ASSERT_OK(cudaUserObjectRetain(object, 3));
  ASSERT_OK(cudaUserObjectRelease(object, 4));
  EXPECT_EQ(0, destroyed_.count());
  ASSERT_OK(cudaUserObjectRelease(object, 1));
  EXPECT_EQ(1, destroyed_.count());
  EXPECT_EQ(0u, emu::live_objects().user_objects);
  EXPECT_NE(std::this_thread::get_id(), destroyed_.thread);
}

TEST_F(UserObjectTest, RefusesWhatCannotBe) {
  cudaUserObject_t object = nullptr;
  constexpr unsigned kFlag = cudaUserObjectNoDestructorSync;
  EXPECT_CUDA(cudaErrorInvalidValue, cudaUserObjectCreate(nullptr, nullptr, destroy, 1, kFlag));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaUserObjectCreate(&object, nullptr, nullptr, 1, kFlag));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaUserObjectCreate(&object, nullptr, destroy, 0, kFlag));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaUserObjectCreate(&object, nullptr, destroy, 0x80000000u, kFlag));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaUserObjectCreate(&object, nullptr, destroy, 1, 0));
  object = make();
  EXPECT_CUDA(cudaErrorInvalidValue, cudaUserObjectRetain(object, 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaUserObjectRelease(object, 2));
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphRetainUserObject(nullptr, object, 1, 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphRetainUserObject(graph, nullptr, 1, 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphRetainUserObject(graph, object, 0, 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphRetainUserObject(graph, object, 1, 2));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphReleaseUserObject(graph, object, 1));
  ASSERT_OK(cudaGraphDestroy(graph));
  ASSERT_OK(cudaUserObjectRelease(object, 1));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaUserObjectRetain(object, 1));
}

TEST_F(UserObjectTest, CudaIsForbiddenInTheDestructor) {
  cudaUserObject_t object = nullptr;
  const auto query = [](void* data) {
    static_cast<Destroyed*>(data)->code = cudaFree(nullptr);
    destroy(data);
  };
  ASSERT_OK(cudaUserObjectCreate(&object, &destroyed_, query, 1, cudaUserObjectNoDestructorSync));
  ASSERT_OK(cudaUserObjectRelease(object, 1));
  EXPECT_EQ(1, destroyed_.count());
  EXPECT_EQ(cudaErrorNotPermitted, destroyed_.code);
}

TEST_F(UserObjectTest, GraphGivesBackWhatItOwns) {
  const cudaUserObject_t object = make();
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  ASSERT_OK(cudaGraphRetainUserObject(graph, object, 2, 0));
  ASSERT_OK(cudaUserObjectRelease(object, 1));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphReleaseUserObject(graph, object, 3));
  ASSERT_OK(cudaGraphReleaseUserObject(graph, object, 1));
  EXPECT_EQ(0, destroyed_.count());
  ASSERT_OK(cudaGraphDestroy(graph));
  EXPECT_EQ(1, destroyed_.count());
}

TEST_F(UserObjectTest, CloneAndExecOwnReferencesOfTheirOwn) {
  const cudaGraph_t graph = make_owner();
  cudaGraph_t clone = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaGraphClone(&clone, graph));
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_OK(cudaGraphDestroy(graph));
  EXPECT_EQ(0, destroyed_.count());
  ASSERT_OK(cudaGraphDestroy(clone));
  EXPECT_EQ(0, destroyed_.count());
  ASSERT_OK(cudaGraphExecDestroy(exec));
  EXPECT_EQ(1, destroyed_.count());
}

TEST_F(UserObjectTest, LaunchKeepsItsObjects) {
  const cudaGraph_t graph = make_owner();
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_OK(cudaGraphDestroy(graph));
  ASSERT_OK(cudaGraphLaunch(exec, stream_));  // with seed 0 nothing runs before something waits for it
  ASSERT_OK(cudaGraphExecDestroy(exec));
  EXPECT_EQ(0, destroyed_.count());
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(1, destroyed_.count());
}

TEST_F(UserObjectTest, UpdateReplacesTheReferencesOfAnExec) {
  const cudaGraph_t graph = make_owner();
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  cudaGraph_t other = nullptr;
  ASSERT_OK(cudaGraphClone(&other, graph));
  ASSERT_OK(cudaGraphDestroy(graph));
  const cudaUserObject_t second = make();
  ASSERT_OK(cudaGraphRetainUserObject(other, second, 1, cudaGraphUserObjectMove));
  cudaGraphExecUpdateResultInfo info;
  ASSERT_OK(cudaGraphExecUpdate(exec, other, &info));
  ASSERT_OK(cudaGraphDestroy(other));
  EXPECT_EQ(0, destroyed_.count());
  const cudaGraph_t third = make_owner();
  ASSERT_OK(cudaGraphExecUpdate(exec, third, &info));
  EXPECT_EQ(2, destroyed_.count());
  ASSERT_OK(cudaGraphDestroy(third));
  EXPECT_EQ(2, destroyed_.count());
  ASSERT_OK(cudaGraphExecDestroy(exec));
  EXPECT_EQ(3, destroyed_.count());
}

TEST_F(UserObjectTest, ChildKeepsItsObjects) {
  const cudaGraph_t child = make_owner();
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  cudaGraphNodeParams params = node_params(cudaGraphNodeTypeGraph);
  params.graph.graph = child;
  ASSERT_OK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  ASSERT_OK(cudaGraphDestroy(child));
  EXPECT_EQ(0, destroyed_.count());
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_OK(cudaGraphDestroy(graph));
  EXPECT_EQ(0, destroyed_.count());
  ASSERT_OK(cudaGraphExecDestroy(exec));
  EXPECT_EQ(1, destroyed_.count());
}

TEST_F(UserObjectTest, GraphUnderCaptureTakesObjects) {
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureStatus status;
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamGetCaptureInfo(stream_, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  ASSERT_OK(cudaGraphRetainUserObject(graph, make(), 1, cudaGraphUserObjectMove));
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(0, destroyed_.count());
  ASSERT_OK(cudaGraphDestroy(graph));
  EXPECT_EQ(1, destroyed_.count());
}

}  // namespace
}  // namespace emu_test::user_object_test
