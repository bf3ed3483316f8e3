// 4.3: cudaGraphExecUpdate.
#include "conformance/scene.h"

namespace conformance {
namespace {

using Build = std::function<void(Recorder&, cudaGraph_t)>;

constexpr const char* kUpdateTable = "4.3 what cudaGraphExecUpdate may change [header]";
constexpr const char* kResults = "4.3 results of cudaGraphExecUpdate [header]";
constexpr auto kFailed = cudaErrorGraphExecUpdateFailure;
constexpr auto kChanged = cudaGraphExecUpdateErrorParametersChanged;
constexpr auto kTopology = cudaGraphExecUpdateErrorTopologyChanged;

// An exec of one graph is updated with another.
Case update(const char* name, const char* row, cudaGraphExecUpdateResult result, const Build& old_graph,
            const Build& new_graph, unsigned long long flags = 0) {
  return {std::string("update.") + name,
          row,
          {returns("cudaGraphExecUpdate", result == cudaGraphExecUpdateSuccess ? cudaSuccess : kFailed),
           gives("result", result)},
          [=](Recorder& r) {
            const cudaGraph_t before = make_graph(r), after = make_graph(r);
            old_graph(r, before);
            new_graph(r, after);
            cudaGraphExec_t exec = nullptr;
            r.need("cudaGraphInstantiate", cudaGraphInstantiate(&exec, before, flags));
            cudaGraphExecUpdateResultInfo info = {};
            r.call("cudaGraphExecUpdate", cudaGraphExecUpdate(exec, after, &info));
            r.value("result", info.result);
          }};
}

Build one(const std::function<cudaGraphNodeParams(Recorder&)>& params) {
  return [params](Recorder& r, cudaGraph_t graph) { add(r, graph, params(r)); };
}

void kernel(Recorder& r, cudaGraph_t graph) { add_set(r, graph, make_int(r), 1); }
void other_kernel(Recorder& r, cudaGraph_t graph) { add_add(r, graph, make_int(r), 2); }

void larger_kernel(Recorder& r, cudaGraph_t graph) {
  KernelArguments arguments(make_int(r), 1);
  cudaGraphNodeParams params = kernel_params(set_address(), arguments);
  params.kernel.gridDim = dim3(2);
  params.kernel.blockDim = dim3(32);
  params.kernel.sharedMemBytes = 64;
  add(r, graph, params);
}

Build with_attribute(cudaLaunchAttributeID id, const cudaKernelNodeAttrValue& value) {
  return [=](Recorder& r, cudaGraph_t graph) {
    const cudaGraphNode_t node = add_set(r, graph, make_int(r), 1);
    r.need("cudaGraphKernelNodeSetAttribute", cudaGraphKernelNodeSetAttribute(node, id, &value));
  };
}

void on_another_device(Recorder& r) {
  const cudaGraph_t before = make_graph(r), after = make_graph(r);
  kernel(r, before);
  const cudaGraphExec_t exec = instantiate(r, before);
  r.need("cudaSetDevice", cudaSetDevice(1));
  r.need("load_kernels", load_kernels());
  kernel(r, after);
  cudaGraphExecUpdateResultInfo info = {};
  r.call("cudaGraphExecUpdate", cudaGraphExecUpdate(exec, after, &info));
  r.value("result", info.result);
}

std::vector<Case> update_kernel_cases() {
  cudaKernelNodeAttrValue cooperative = {}, low = {}, high = {};
  cooperative.cooperative = 1;
  high.priority = -1;
  const Build lower = with_attribute(cudaLaunchAttributePriority, low);
  const Build higher = with_attribute(cudaLaunchAttributePriority, high);
  return {by_foreign_test(
              update("kernel_function_and_arguments", kUpdateTable, cudaGraphExecUpdateSuccess, kernel, other_kernel)),
          {.name = "update.kernel_of_another_device",
           .row = kUpdateTable,
           .expected = {returns("cudaGraphExecUpdate", kFailed),
                        gives("result", cudaGraphExecUpdateErrorUnsupportedFunctionChange)},
           .run = on_another_device,
           .devices = 2},
          update("kernel_dimensions", kUpdateTable, cudaGraphExecUpdateSuccess, kernel, larger_kernel),
          update("kernel_becomes_cooperative", kUpdateTable, cudaGraphExecUpdateErrorAttributesChanged, kernel,
                 with_attribute(cudaLaunchAttributeCooperative, cooperative)),
          update("priority", kUpdateTable, cudaGraphExecUpdateSuccess, lower, higher),
          update("priority_that_is_used", kUpdateTable, cudaGraphExecUpdateErrorAttributesChanged, lower, higher,
                 cudaGraphInstantiateFlagUseNodePriority)};
}

std::vector<Case> update_memory_cases() {
  const auto device_copy = [](Recorder& r) {
    return copy_params(make_int(r), make_int(r), 4, cudaMemcpyDeviceToDevice);
  };
  const auto host_copy = [](Recorder& r) {
    return copy_params(make_int(r), make_pinned(r), 4, cudaMemcpyHostToDevice);
  };
  const auto fill = [](unsigned value, std::size_t words, std::size_t rows) {
    return one([=](Recorder& r) {
      int* memory = nullptr;
      r.need("cudaMalloc", cudaMalloc(&memory, 1024));
      return fill_params(memory, value, words, rows);
    });
  };
  return {by_foreign_test(
              update("copy_addresses", kUpdateTable, cudaGraphExecUpdateSuccess, one(device_copy), one(device_copy))),
          by_foreign_test(update("copy_kind", kUpdateTable, kChanged, one(device_copy), one(host_copy))),
          update("fill_address_and_value", kUpdateTable, cudaGraphExecUpdateSuccess, fill(1, 4, 1), fill(2, 4, 1)),
          update("fill_2d_value", kUpdateTable, cudaGraphExecUpdateSuccess, fill(1, 4, 2), fill(2, 4, 2)),
          update("fill_2d_width", kUpdateTable, kChanged, fill(1, 4, 2), fill(1, 8, 2)),
          update("fill_2d_height", kUpdateTable, kChanged, fill(1, 4, 2), fill(1, 4, 3)),
          update("fill_becomes_2d", kUpdateTable, kChanged, fill(1, 4, 1), fill(1, 4, 2)),
          update("allocation_size", "4.3 allocations change in size [the sheet has: no change of parameters]",
                 cudaGraphExecUpdateSuccess, one([](Recorder&) { return alloc_params(256); }),
                 one([](Recorder&) { return alloc_params(512); }))};
}

Build child_of(const Build& inner) {
  return [inner](Recorder& r, cudaGraph_t graph) {
    const cudaGraph_t child = make_graph(r);
    inner(r, child);
    add(r, graph, child_params(child, cudaGraphChildGraphOwnershipClone));
  };
}

Build body_of(const Build& inner, cudaGraphConditionalNodeType type = cudaGraphCondTypeIf, unsigned value = 0,
              unsigned size = 1) {
  return [=](Recorder& r, cudaGraph_t graph) {
    inner(r, add_conditional(r, graph, make_handle(r, graph, value), type, size).bodies[0]);
  };
}

void two_kernels(Recorder& r, cudaGraph_t graph) {
  kernel(r, graph);
  kernel(r, graph);
}

std::vector<Case> nested_cases() {
  return {
      update("host_function", kUpdateTable, cudaGraphExecUpdateSuccess,
             one([](Recorder&) { return host_params([](void*) {}, nullptr); }),
             one([](Recorder& r) { return host_params([](void*) {}, make_pinned(r)); })),
      update("event_record", kUpdateTable, cudaGraphExecUpdateSuccess,
             one([](Recorder& r) { return event_record_params(make_event(r)); }),
             one([](Recorder& r) { return event_record_params(make_event(r)); })),
      update("event_wait", kUpdateTable, cudaGraphExecUpdateSuccess,
             one([](Recorder& r) { return event_wait_params(make_event(r)); }),
             one([](Recorder& r) { return event_wait_params(make_event(r)); })),
      update("child_parameters", kUpdateTable, cudaGraphExecUpdateSuccess, child_of(kernel), child_of(other_kernel)),
      update("child_topology", kUpdateTable, kTopology, child_of(kernel), child_of(two_kernels)),
      update("body_parameters", kUpdateTable, cudaGraphExecUpdateSuccess, body_of(kernel), body_of(other_kernel)),
      update("body_topology", kUpdateTable, kTopology, body_of(kernel), body_of(two_kernels)),
      update("conditional_type", kUpdateTable, cudaGraphExecUpdateErrorNotSupported, body_of(kernel),
             body_of(kernel, cudaGraphCondTypeSwitch)),
      update("conditional_size", "4.3 conditional: its parameters are fixed [header; the result as for its type]",
             cudaGraphExecUpdateErrorNotSupported, body_of(kernel), body_of(kernel, cudaGraphCondTypeIf, 0, 2)),
      {"update.conditional_default",
       "4.3 conditional: defaults are updated [header]",
       {returns("cudaGraphExecUpdate", cudaSuccess), gives("set by the body", 1)},
       [](Recorder& r) {
         int* memory = make_int(r);
         const Build set = [memory](Recorder& inner, cudaGraph_t graph) { add_set(inner, graph, memory, 1); };
         const cudaGraph_t off = make_graph(r), on = make_graph(r);
         body_of(set, cudaGraphCondTypeIf, 0)(r, off);
         body_of(set, cudaGraphCondTypeIf, 1)(r, on);
         const cudaGraphExec_t exec = instantiate(r, off);
         cudaGraphExecUpdateResultInfo info = {};
         r.call("cudaGraphExecUpdate", cudaGraphExecUpdate(exec, on, &info));
         launch(r, exec, make_stream(r));
         r.value("set by the body", read_int(r, memory));
       }}};
}

// A failed update, and which nodes it names.
Case failed(const char* name, cudaGraphExecUpdateResult result, bool names_node, bool names_from, const Build& before,
            const Build& after) {
  Case made = update(name, kResults, result, before, after);
  made.expected.push_back(gives("errorNode", names_node));
  made.expected.push_back(gives("errorFromNode", names_from));
  made.run = [=](Recorder& r) {
    const cudaGraph_t old_graph = make_graph(r), new_graph = make_graph(r);
    before(r, old_graph);
    after(r, new_graph);
    cudaGraphExecUpdateResultInfo info = {};
    r.call("cudaGraphExecUpdate", cudaGraphExecUpdate(instantiate(r, old_graph), new_graph, &info));
    r.value("result", info.result);
    r.value("errorNode", info.errorNode != nullptr);
    r.value("errorFromNode", info.errorFromNode != nullptr);
  };
  return made;
}

// One node after two, of which each depends on the same two: one of them by edges in this order.
Build diamond(std::size_t first, std::size_t second) {
  return [=](Recorder& r, cudaGraph_t graph) {
    const Nodes roots{add(r, graph, empty_params()), add(r, graph, empty_params())};
    const cudaGraphNode_t middle = add(r, graph, empty_params(), roots);
    const cudaGraphNode_t other = add(r, graph, empty_params(), {roots[first], roots[second]});
    add(r, graph, empty_params(), {middle, other});
  };
}

// Three nodes; the last that something leads to is an empty one after one other, or a kernel after two.
void empty_after_one(Recorder& r, cudaGraph_t graph) {
  add(r, graph, empty_params(), {add(r, graph, empty_params())});
  add(r, graph, empty_params());
}
void kernel_after_two(Recorder& r, cudaGraph_t graph) {
  add_set(r, graph, make_int(r), 1, {add(r, graph, empty_params()), add(r, graph, empty_params())});
}

// Two kernels in a row, of which the second may be launched programmatically.
Build pair(bool is_programmatic) {
  return [is_programmatic](Recorder& r, cudaGraph_t graph) {
    int* memory = make_int(r);
    capture_into(r, graph, [&](cudaStream_t stream) {
      r.need("kernel launch", launch_set(stream, memory, 1));
      r.need("kernel launch",
             is_programmatic ? launch_add_programmatic(stream, memory, 1) : launch_add(stream, memory, 1));
    });
  };
}

Case lost_node() {
  return {"update.graph_that_lost_a_node",
          kResults,
          {returns("cudaGraphExecUpdate", kFailed),
           gives("result", kTopology)},  // of three foreign tests only one expects it, the others 6
          [](Recorder& r) {
            const cudaGraph_t graph = make_graph(r);
            kernel(r, graph);
            const cudaGraphNode_t last = add_set(r, graph, make_int(r), 1);
            const cudaGraphExec_t exec = instantiate(r, graph);
            r.need("cudaGraphDestroyNode", cudaGraphDestroyNode(last));
            cudaGraphExecUpdateResultInfo info = {};
            r.call("cudaGraphExecUpdate", cudaGraphExecUpdate(exec, graph, &info));
            r.value("result", info.result);
          }};
}

std::vector<Case> result_cases() {
  const Build empty = one([](Recorder&) { return empty_params(); });
  return {
      by_foreign_test(failed("number_of_nodes", kTopology, false, false, kernel, two_kernels)),
      by_foreign_test(failed("type_of_a_node", cudaGraphExecUpdateErrorNodeTypeChanged, true, false, kernel, empty)),
      failed("number_of_edges", kTopology, false, false, two_kernels,
             [](Recorder& r, cudaGraph_t graph) {
               const cudaGraphNode_t node = add_set(r, graph, make_int(r), 1);
               add_set(r, graph, make_int(r), 1, {node});
             }),
      update("programmatic_edge", "4.3 a re-capture with the same launches [unverified]", cudaGraphExecUpdateSuccess,
             pair(true), pair(true)),
      update("programmatic_edge_in_place_of_another", "4.3 any topology change [unverified: of the data of an edge]",
             kTopology, pair(false), pair(true)),
      failed("another_edge", kTopology, true, true, diamond(0, 1), diamond(1, 0)),
      failed("edges_and_type_of_a_node", kTopology, false, false, empty_after_one, kernel_after_two),
      lost_node(),
      {"update.failure_is_not_sticky",
       "4.3 after 910 [issue]",
       {returns("cudaGraphExecUpdate", kFailed), returns("cudaGetLastError", kFailed),
        returns("cudaGetLastError", cudaSuccess), returns("cudaGraphLaunch", cudaSuccess)},
       [](Recorder& r) {
         const cudaGraph_t graph = make_graph(r), other = make_graph(r);
         kernel(r, graph);
         two_kernels(r, other);
         const cudaGraphExec_t exec = instantiate(r, graph);
         cudaGraphExecUpdateResultInfo info = {};
         r.call("cudaGraphExecUpdate", cudaGraphExecUpdate(exec, other, &info));
         r.call("cudaGetLastError", cudaGetLastError());
         r.call("cudaGetLastError", cudaGetLastError());
         r.call("cudaGraphLaunch", cudaGraphLaunch(exec, make_stream(r)));
       }}};
}

}  // namespace

std::vector<Case> update_cases() {
  std::vector<Case> cases = update_kernel_cases();
  for (const auto& part : {update_memory_cases(), nested_cases(), result_cases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

}  // namespace conformance
