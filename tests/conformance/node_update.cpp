// 4.3: changing one node of an exec.
#include "conformance/scene.h"

namespace conformance {
namespace {

constexpr const char* kNodeTable = "4.3 per-node SetParams [header]";

using Params = std::function<cudaGraphNodeParams(Recorder&)>;

// A node is made with some parameters and its exec is given others.
Case set_params(const char* name, cudaError_t code, const Params& before, const Params& after) {
  return {
      std::string("node_params.") + name, kNodeTable, {returns("cudaGraphExecNodeSetParams", code)}, [=](Recorder& r) {
        const cudaGraph_t graph = make_graph(r);
        const cudaGraphNode_t node = add(r, graph, before(r));
        const cudaGraphExec_t exec = instantiate(r, graph);
        cudaGraphNodeParams params = after(r);
        r.call("cudaGraphExecNodeSetParams", cudaGraphExecNodeSetParams(exec, node, &params));
      }};
}

std::vector<Case> set_params_cases() {
  constexpr auto kInvalid = cudaErrorInvalidValue;
  const auto copy = [](std::size_t bytes) {
    return [bytes](Recorder& r) { return copy_params(make_int(r), make_int(r), bytes, cudaMemcpyDeviceToDevice); };
  };
  const auto fill = [](std::size_t words) {
    return [words](Recorder& r) { return fill_params(make_int(r), 2, words); };
  };
  const auto one_byte = [](Recorder& r) {
    cudaGraphNodeParams params = fill_params(make_int(r), 2, 1);
    params.memset.elementSize = 1;
    return params;
  };
  const auto host = [](Recorder& r) { return host_params([](void*) {}, make_pinned(r)); };
  const auto record = [](Recorder& r) { return event_record_params(make_event(r)); };
  const auto wait = [](Recorder& r) { return event_wait_params(make_event(r)); };
  const auto alloc = [](Recorder&) { return alloc_params(256); };
  const auto empty = [](Recorder&) { return empty_params(); };
  return {set_params("memcpy", cudaSuccess, copy(4), copy(4)),
          set_params("memcpy_of_nothing", kInvalid, copy(4), copy(0)),
          set_params("memset", cudaSuccess, fill(1), fill(1)),
          set_params("memset_of_nothing", kInvalid, fill(1), fill(0)),
          set_params("host", cudaSuccess, host, host),
          set_params("event_record", cudaSuccess, record, record),
          set_params("event_wait", cudaSuccess, wait, wait),
          set_params("mem_alloc", cudaErrorNotSupported, alloc, alloc),
          set_params("another_type", kInvalid, host, empty),
          by_foreign_test(set_params("memset_element_size", cudaSuccess, fill(1), one_byte))};
}

std::vector<Case> node_kernel_cases() {
  return {{"node_params.kernel",
           kNodeTable,
           {returns("cudaGraphExecNodeSetParams", cudaSuccess), gives("value", 5)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = make_graph(r);
             const cudaGraphNode_t node = add_set(r, graph, memory, 1);
             const cudaGraphExec_t exec = instantiate(r, graph);
             KernelArguments arguments(memory, 5);
             cudaGraphNodeParams params = kernel_params(add_address(), arguments);
             r.call("cudaGraphExecNodeSetParams", cudaGraphExecNodeSetParams(exec, node, &params));
             launch(r, exec, make_stream(r));
             r.value("value", read_int(r, memory));
           }},
          {"node_params.kernel_of_a_body",
           "2 host SetParams on body nodes [issue, no result log]; 4.3",
           {returns("cudaGraphExecNodeSetParams", cudaSuccess), gives("value", 5)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = make_graph(r);
             const auto made = add_conditional(r, graph, make_handle(r, graph, 1), cudaGraphCondTypeIf, 1);
             const cudaGraphNode_t node = add_set(r, made.bodies[0], memory, 1);
             const cudaGraphExec_t exec = instantiate(r, graph);
             KernelArguments arguments(memory, 5);
             cudaGraphNodeParams params = kernel_params(set_address(), arguments);
             r.call("cudaGraphExecNodeSetParams", cudaGraphExecNodeSetParams(exec, node, &params));
             launch(r, exec, make_stream(r));
             r.value("value", read_int(r, memory));
           }},
          {"node_params.child",
           kNodeTable,
           {returns("cudaGraphExecNodeSetParams", cudaSuccess), gives("value", 5)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = make_graph(r), one = make_graph(r), five = make_graph(r);
             add_set(r, one, memory, 1);
             add_set(r, five, memory, 5);
             const cudaGraphNode_t node = add(r, graph, child_params(one, cudaGraphChildGraphOwnershipClone));
             const cudaGraphExec_t exec = instantiate(r, graph);
             cudaGraphNodeParams params = child_params(five, cudaGraphChildGraphOwnershipClone);
             r.call("cudaGraphExecNodeSetParams", cudaGraphExecNodeSetParams(exec, node, &params));
             launch(r, exec, make_stream(r));
             r.value("value", read_int(r, memory));
           }}};
}

std::vector<Case> enabled_cases() {
  return {{"enabled.disabled_node_does_nothing",
           "4.3 SetEnabled [header, doc]",
           {returns("cudaGraphNodeSetEnabled", cudaSuccess), gives("off", 0), gives("on again", 1)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = make_graph(r);
             const cudaGraphNode_t node = add_set(r, graph, memory, 1);
             const cudaGraphExec_t exec = instantiate(r, graph);
             const cudaStream_t stream = make_stream(r);
             r.call("cudaGraphNodeSetEnabled", cudaGraphNodeSetEnabled(exec, node, 0));
             launch(r, exec, stream);
             r.value("off", read_int(r, memory));
             r.need("cudaGraphNodeSetEnabled", cudaGraphNodeSetEnabled(exec, node, 1));
             launch(r, exec, stream);
             r.value("on again", read_int(r, memory));
           }},
          {"enabled.survives_an_update",
           "4.3 SetEnabled survives updates [header, doc]",
           {returns("cudaGraphExecUpdate", cudaSuccess), gives("enabled", 0), gives("value", 0)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = make_graph(r), other = make_graph(r);
             const cudaGraphNode_t node = add_set(r, graph, memory, 1);
             add_set(r, other, memory, 2);
             const cudaGraphExec_t exec = instantiate(r, graph);
             r.need("cudaGraphNodeSetEnabled", cudaGraphNodeSetEnabled(exec, node, 0));
             cudaGraphExecUpdateResultInfo info = {};
             r.call("cudaGraphExecUpdate", cudaGraphExecUpdate(exec, other, &info));
             unsigned enabled = 1;
             r.need("cudaGraphNodeGetEnabled", cudaGraphNodeGetEnabled(exec, node, &enabled));
             r.value("enabled", enabled);
             launch(r, exec, make_stream(r));
             r.value("value", read_int(r, memory));
           }}};
}

}  // namespace

std::vector<Case> node_update_cases() {
  std::vector<Case> cases = set_params_cases();
  for (const auto& part : {node_kernel_cases(), enabled_cases()}) cases.insert(cases.end(), part.begin(), part.end());
  return cases;
}

}  // namespace conformance
