// 2, the second table: children, copies, and what kinds of nodes forbid a graph.
#include <atomic>
#include <thread>

#include "conformance/scene.h"

namespace conformance {
namespace {

constexpr auto kNotSupported = cudaErrorNotSupported;
constexpr auto kMove = cudaGraphChildGraphOwnershipMove;
constexpr auto kClone = cudaGraphChildGraphOwnershipClone;

// A graph with one node of a kind that restricts what can be done with it.
enum class Kind { kAlloc, kFree, kConditional, kUpdatable };

void make_updatable(Recorder& r, cudaGraphNode_t node) {
  cudaKernelNodeAttrValue value = {};
  value.deviceUpdatableKernelNode.deviceUpdatable = 1;
  r.need("cudaGraphKernelNodeSetAttribute",
         cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeDeviceUpdatableKernelNode, &value));
}

void* add_alloc(Recorder& r, cudaGraph_t graph, cudaGraphNode_t* node) {
  cudaGraphNodeParams params = alloc_params(256);
  r.need("cudaGraphAddNode", add_node(node, graph, params));
  return params.alloc.dptr;
}

cudaGraphNode_t add_kind(Recorder& r, cudaGraph_t graph, Kind kind) {
  cudaGraphNode_t node = nullptr;
  switch (kind) {
    case Kind::kAlloc:
      add_alloc(r, graph, &node);
      break;
    case Kind::kFree: {
      // Of an allocation of another graph, which has been launched.
      const cudaGraph_t other = make_graph(r);
      void* memory = add_alloc(r, other, &node);
      const cudaStream_t stream = make_stream(r);
      launch(r, instantiate(r, other), stream);
      node = add(r, graph, free_params(memory));
      break;
    }
    case Kind::kConditional:
      node = add_conditional(r, graph, make_handle(r, graph), cudaGraphCondTypeIf, 1).node;
      break;
    case Kind::kUpdatable:
      node = add_set(r, graph, make_int(r), 1);
      make_updatable(r, node);
      break;
  }
  return node;
}

Case child(const char* name, Kind kind, cudaGraphChildGraphNodeOwnership ownership, cudaError_t code) {
  return {std::string("child.") + name,
          "2 child graphs, Clone and Move [header]",
          {returns("cudaGraphAddNode", code)},
          [=](Recorder& r) {
            const cudaGraph_t inner = make_graph(r);
            add_kind(r, inner, kind);
            cudaGraphNode_t node = nullptr;
            cudaGraphNodeParams params = child_params(inner, ownership);
            r.call("cudaGraphAddNode", add_node(&node, make_graph(r), params));
          }};
}

Case forbidden(const char* name, const char* row, const char* call, cudaError_t code,
               const std::function<cudaError_t(Recorder&, cudaGraph_t, cudaGraphNode_t)>& make, Kind kind) {
  return {std::string("restricted.") + name, row, {returns(call, code)}, [=](Recorder& r) {
            const cudaGraph_t graph = make_graph(r);
            const cudaGraphNode_t node = add_kind(r, graph, kind);
            r.call(call, make(r, graph, node));
          }};
}

cudaError_t clone(Recorder&, cudaGraph_t graph, cudaGraphNode_t) {
  cudaGraph_t copy = nullptr;
  return cudaGraphClone(&copy, graph);
}

cudaError_t clone_body(Recorder& r, cudaGraph_t graph, cudaGraphNode_t) {
  const auto made = add_conditional(r, graph, make_handle(r, graph), cudaGraphCondTypeIf, 1);
  cudaGraph_t copy = nullptr;
  return cudaGraphClone(&copy, made.bodies[0]);
}

cudaError_t instantiate_again(Recorder& r, cudaGraph_t graph, cudaGraphNode_t) {
  instantiate(r, graph);
  cudaGraphExec_t second = nullptr;
  return cudaGraphInstantiate(&second, graph, 0);
}

cudaError_t destroy_node(Recorder&, cudaGraph_t, cudaGraphNode_t node) { return cudaGraphDestroyNode(node); }

cudaError_t destroy_other_node(Recorder& r, cudaGraph_t graph, cudaGraphNode_t) {
  return cudaGraphDestroyNode(add(r, graph, empty_params()));
}

cudaError_t remove_edge(Recorder& r, cudaGraph_t graph, cudaGraphNode_t node) {
  const cudaGraphNode_t to = add(r, graph, empty_params(), {node});
  return cudaGraphRemoveDependencies(graph, &node, &to, nullptr, 1);
}

cudaError_t update_exec(Recorder& r, cudaGraph_t graph, cudaGraphNode_t) {
  cudaGraphExecUpdateResultInfo info = {};
  return cudaGraphExecUpdate(instantiate(r, graph), graph, &info);
}

cudaError_t opt_out(Recorder&, cudaGraph_t, cudaGraphNode_t node) {
  cudaKernelNodeAttrValue value = {};
  return cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeDeviceUpdatableKernelNode, &value);
}

cudaError_t copy_attributes(Recorder& r, cudaGraph_t graph, cudaGraphNode_t node) {
  return cudaGraphKernelNodeCopyAttributes(add_set(r, graph, make_int(r), 1), node);
}

std::vector<Case> restricted_cases() {
  constexpr const char* kAlloc = "2 graphs with alloc or free nodes [header]";
  constexpr const char* kConditional = "2 graphs with conditional nodes; 3 clone, child, second exec [header]";
  constexpr const char* kUpdatable = "2 graphs with device-updatable nodes [header]";
  constexpr const char* kUnstated = "2 a second exec [header; code unverified]";
  return {
      by_foreign_test(forbidden("clone_alloc", kAlloc, "cudaGraphClone", kNotSupported, clone, Kind::kAlloc)),
      by_foreign_test(forbidden("clone_free", kAlloc, "cudaGraphClone", kNotSupported, clone, Kind::kFree)),
      forbidden("clone_conditional", kConditional, "cudaGraphClone", kNotSupported, clone, Kind::kConditional),
      forbidden("clone_of_a_body", "2 graphs in conditional nodes [text of the error log of an H100]", "cudaGraphClone",
                kNotSupported, clone_body, Kind::kConditional),
      by_foreign_test(forbidden("second_exec_alloc", kUnstated, "cudaGraphInstantiate", kNotSupported,
                                instantiate_again, Kind::kAlloc)),
      forbidden("second_exec_conditional", kUnstated, "cudaGraphInstantiate", kNotSupported, instantiate_again,
                Kind::kConditional),
      forbidden("second_exec_updatable", kUnstated, "cudaGraphInstantiate", kNotSupported, instantiate_again,
                Kind::kUpdatable),
      by_foreign_test(
          forbidden("destroy_alloc_node", kAlloc, "cudaGraphDestroyNode", kNotSupported, destroy_node, Kind::kAlloc)),
      forbidden("destroy_node_beside_alloc", kAlloc, "cudaGraphDestroyNode", kNotSupported, destroy_other_node,
                Kind::kAlloc),
      by_foreign_test(forbidden("remove_edge_beside_alloc", kAlloc, "cudaGraphRemoveDependencies", kNotSupported,
                                remove_edge, Kind::kAlloc)),
      forbidden("destroy_updatable_node", kUpdatable, "cudaGraphDestroyNode", kNotSupported, destroy_node,
                Kind::kUpdatable),
      forbidden("updatable_exec_update", kUpdatable, "cudaGraphExecUpdate", kNotSupported, update_exec,
                Kind::kUpdatable),
      forbidden("updatable_opt_out", kUpdatable, "cudaGraphKernelNodeSetAttribute", kNotSupported, opt_out,
                Kind::kUpdatable),
      forbidden("updatable_copy_attributes", kUpdatable, "cudaGraphKernelNodeCopyAttributes", kNotSupported,
                copy_attributes, Kind::kUpdatable),
  };
}

// A child that was moved into a parent: what can still be done with its handle.
Case moved(const char* name, const char* call, cudaError_t code,
           const std::function<cudaError_t(Recorder&, cudaGraph_t)>& make) {
  return {std::string("moved_child.") + name,
          "2 after Move [header; codes issue-hw]",
          {returns(call, code)},
          [=](Recorder& r) {
            const cudaGraph_t inner = make_graph(r);
            add_set(r, inner, make_int(r), 1);
            add(r, make_graph(r), child_params(inner, kMove));
            r.call(call, make(r, inner));
          }};
}

cudaError_t add_params(cudaGraph_t graph, cudaGraphNodeParams params) {
  cudaGraphNode_t node = nullptr;
  return add_node(&node, graph, params);
}

std::vector<Case> moved_cases() {
  return {moved("destroy", "cudaGraphDestroy", kInvalid,
                [](Recorder&, cudaGraph_t inner) { return cudaGraphDestroy(inner); }),
          moved("instantiate", "cudaGraphInstantiate", cudaErrorNotSupported,
                [](Recorder&, cudaGraph_t inner) {
                  cudaGraphExec_t exec = nullptr;
                  return cudaGraphInstantiate(&exec, inner, 0);
                }),
          moved("add_to_another", "cudaGraphAddNode", cudaErrorNotSupported,
                [](Recorder& r, cudaGraph_t inner) { return add_params(make_graph(r), child_params(inner, kClone)); }),
          moved("edit", "cudaGraphAddNode", cudaSuccess,
                [](Recorder&, cudaGraph_t inner) { return add_params(inner, empty_params()); }),
          moved("add_alloc", "cudaGraphAddNode", cudaErrorNotSupported,
                [](Recorder&, cudaGraph_t inner) { return add_params(inner, alloc_params(256)); }),
          {"moved_child.exec_update",
           "2 after Move: not usable in ExecUpdate [header]",
           {returns("cudaGraphExecUpdate", kInvalid)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t inner = make_graph(r), graph = make_graph(r);
             add_set(r, inner, memory, 1);
             add_set(r, graph, memory, 1);
             add(r, make_graph(r), child_params(inner, kMove));
             cudaGraphExecUpdateResultInfo info = {};
             r.call("cudaGraphExecUpdate", cudaGraphExecUpdate(instantiate(r, graph), inner, &info));
           }},
          {"moved_child.same_handle",
           "2 after Move [header]",
           {returns("cudaGraphChildGraphNodeGetGraph", cudaSuccess), gives("same handle", 1), gives("ran", 7)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t inner = make_graph(r), outer = make_graph(r);
             add_set(r, inner, memory, 7);
             const cudaGraphNode_t node = add(r, outer, child_params(inner, kMove));
             cudaGraph_t given = nullptr;
             r.call("cudaGraphChildGraphNodeGetGraph", cudaGraphChildGraphNodeGetGraph(node, &given));
             r.value("same handle", given == inner);
             launch(r, instantiate(r, outer), make_stream(r));
             r.value("ran", read_int(r, memory));
           }}};
}

// Writes a known attribute and reads it back.
Case attribute(const char* name, cudaLaunchAttributeID id, const cudaKernelNodeAttrValue& value) {
  return {std::string("attribute.") + name,
          "2 attributes of kernel nodes [header]",
          {returns("cudaGraphKernelNodeSetAttribute", cudaSuccess)},
          [=](Recorder& r) {
            const cudaGraphNode_t node = add_set(r, make_graph(r), make_int(r), 1);
            r.call("cudaGraphKernelNodeSetAttribute", cudaGraphKernelNodeSetAttribute(node, id, &value));
          }};
}

std::vector<Case> forbidden_attribute_cases() {
  cudaKernelNodeAttrValue priority = {}, cooperative = {}, window = {}, domain = {}, cluster = {};
  cooperative.cooperative = 1;
  domain.memSyncDomain = cudaLaunchMemSyncDomainDefault;
  cluster.clusterDim.x = cluster.clusterDim.y = cluster.clusterDim.z = 1;
  return {attribute("priority", cudaLaunchAttributePriority, priority),
          attribute("cooperative", cudaLaunchAttributeCooperative, cooperative),
          attribute("access_policy", cudaLaunchAttributeAccessPolicyWindow, window),
          attribute("memory_domain", cudaLaunchAttributeMemSyncDomain, domain),
          attribute("cluster_dimension", cudaLaunchAttributeClusterDimension, cluster),
          {"attribute.never_set_reads_zero",
           "2 attributes of kernel nodes [issue-hw]",
           {returns("cudaGraphKernelNodeGetAttribute", cudaSuccess), gives("cooperative", 0)},
           [](Recorder& r) {
             const cudaGraphNode_t node = add_set(r, make_graph(r), make_int(r), 1);
             cudaKernelNodeAttrValue value = {};
             value.cooperative = 1;
             r.call("cudaGraphKernelNodeGetAttribute",
                    cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeCooperative, &value));
             r.value("cooperative", value.cooperative);
           }},
          {"attribute.of_another_node",
           "2 attributes of kernel nodes [issue-hw]",
           {returns("cudaGraphKernelNodeGetAttribute", kInvalid)},
           [](Recorder& r) {
             const cudaGraphNode_t node = add(r, make_graph(r), empty_params());
             cudaKernelNodeAttrValue value = {};
             r.call("cudaGraphKernelNodeGetAttribute",
                    cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeCooperative, &value));
           }}};
}

// What the destructor of a user object leaves behind.
struct Destroyed {
  std::atomic<int> times{0};
  cudaStream_t stream = nullptr;  // it asks for its state
  cudaError_t code = cudaSuccess;

  void wait() const {
    while (times == 0) std::this_thread::yield();
  }
};

cudaError_t create_object(cudaUserObject_t* object, Destroyed& destroyed) {
  const auto destroy = [](void* data) {
    auto& seen = *static_cast<Destroyed*>(data);
    if (seen.stream != nullptr) seen.code = cudaStreamQuery(seen.stream);
    ++seen.times;
  };
  return cudaUserObjectCreate(object, &destroyed, destroy, 1, cudaUserObjectNoDestructorSync);
}

cudaUserObject_t make_object(Recorder& r, Destroyed& destroyed) {
  cudaUserObject_t object = nullptr;
  r.need("cudaUserObjectCreate", create_object(&object, destroyed));
  return object;
}

std::vector<Case> lifetime_cases() {
  return {{"lifetime.kernel_arguments_are_copied",
           "2 kernelParams are copied at node creation [header]",
           {gives("argument at creation", 1)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = make_graph(r);
             KernelArguments arguments(memory, 1);
             add(r, graph, kernel_params(set_address(), arguments));
             arguments.value = 2;
             launch(r, instantiate(r, graph), make_stream(r));
             r.value("argument at creation", read_int(r, memory));
           }},
          {"lifetime.copied_memory_is_not",
           "2 memcpy payloads and userData are not copied [header]",
           {gives("payload at launch", 2)},
           [](Recorder& r) {
             int* memory = make_int(r);
             int source = 1;
             const cudaGraph_t graph = make_graph(r);
             add(r, graph, copy_params(memory, &source, 4, cudaMemcpyHostToDevice));
             source = 2;
             launch(r, instantiate(r, graph), make_stream(r));
             r.value("payload at launch", read_int(r, memory));
           }},
          {"lifetime.user_object_flag",
           "2 cudaUserObject: the flag must be NoDestructorSync [header]",
           {returns("cudaUserObjectCreate", kInvalid)},
           [](Recorder& r) {
             cudaUserObject_t object = nullptr;
             r.call("cudaUserObjectCreate", cudaUserObjectCreate(
                                                &object, nullptr, [](void*) {}, 1, 0));
           }},
          {"lifetime.user_object_of_a_launch",
           "2 cudaUserObject: of graph, exec and launches under way [doc 4.2.8]",
           {returns("cudaGraphRetainUserObject", cudaSuccess), gives("with an exec", 0), gives("with nothing", 1)},
           [](Recorder& r) {
             Destroyed destroyed;
             const cudaGraph_t graph = make_graph(r);
             add_set(r, graph, make_int(r), 1);
             const cudaUserObject_t object = make_object(r, destroyed);
             r.call("cudaGraphRetainUserObject", cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
             const cudaGraphExec_t exec = instantiate(r, graph);
             r.need("cudaGraphDestroy", cudaGraphDestroy(graph));
             const cudaStream_t stream = make_stream(r);
             r.value("with an exec", destroyed.times.load());
             r.need("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
             r.need("cudaGraphExecDestroy", cudaGraphExecDestroy(exec));
             r.need("cudaStreamSynchronize", cudaStreamSynchronize(stream));
             destroyed.wait();
             r.value("with nothing", destroyed.times.load());
           }},
          {"lifetime.user_object_of_a_capture",
           "2 cudaUserObject: of a graph under capture [doc 4.2.8]",
           {returns("cudaUserObjectCreate", cudaSuccess, Status::kActive),
            returns("cudaGraphRetainUserObject", cudaSuccess, Status::kActive), capture_ends(), gives("destroyed", 1)},
           [](Recorder& r) {
             Destroyed destroyed;
             const cudaStream_t stream = make_capturing(r);
             cudaUserObject_t object = nullptr;
             r.call("cudaUserObjectCreate", create_object(&object, destroyed));
             r.call("cudaGraphRetainUserObject",
                    cudaGraphRetainUserObject(captured_graph(r, stream), object, 1, cudaGraphUserObjectMove));
             r.need("cudaGraphDestroy", cudaGraphDestroy(record_end(r, stream)));
             destroyed.wait();
             r.value("destroyed", destroyed.times.load());
           }},
          {"lifetime.user_object_calls_cuda",
           "2 cudaUserObject: the destructor must not call CUDA [doc 4.2.8; the code by analogy with host functions]",
           {returns("cudaUserObjectRelease", cudaSuccess), returns("cudaStreamQuery", cudaErrorNotPermitted)},
           [](Recorder& r) {
             Destroyed destroyed;
             destroyed.stream = make_stream(r);
             const cudaUserObject_t object = make_object(r, destroyed);
             r.call("cudaUserObjectRelease", cudaUserObjectRelease(object, 1));
             destroyed.wait();
             r.call("cudaStreamQuery", destroyed.code);
           }}};
}

Case freed_before_it_is_allocated() {
  return by_foreign_test({"free_node.before_the_allocation_ran",
                          "2 a free node of another graph's allocation [foreign tests]",
                          {returns("cudaGraphAddNode", cudaSuccess), returns("cudaStreamSynchronize", cudaSuccess)},
                          [](Recorder& r) {
                            const cudaGraph_t makes = make_graph(r), frees = make_graph(r);
                            cudaGraphNode_t node = nullptr;
                            void* memory = add_alloc(r, makes, &node);
                            cudaGraphNodeParams params = free_params(memory);
                            r.call("cudaGraphAddNode", add_node(&node, frees, params));
                            const cudaGraphExec_t make = instantiate(r, makes), free = instantiate(r, frees);
                            const cudaStream_t stream = make_stream(r);
                            r.need("cudaGraphLaunch", cudaGraphLaunch(make, stream));
                            r.need("cudaGraphLaunch", cudaGraphLaunch(free, stream));
                            r.call("cudaStreamSynchronize", cudaStreamSynchronize(stream));
                          }});
}

}  // namespace

std::vector<Case> graph_cases() {
  std::vector<Case> cases{by_foreign_test(child("clone_with_alloc", Kind::kAlloc, kClone, kNotSupported)),
                          child("clone_with_free", Kind::kFree, kClone, kNotSupported),
                          child("clone_with_conditional", Kind::kConditional, kClone, kNotSupported),
                          child("move_with_alloc", Kind::kAlloc, kMove, cudaSuccess),
                          child("move_with_free", Kind::kFree, kMove, cudaSuccess),
                          child("move_with_conditional", Kind::kConditional, kMove, kNotSupported),
                          freed_before_it_is_allocated()};
  for (const auto& part : {restricted_cases(), moved_cases(), forbidden_attribute_cases(), lifetime_cases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

}  // namespace conformance
