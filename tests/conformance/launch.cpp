// 4: instantiating, uploading and launching.
#include "conformance/scene.h"

namespace conformance {
namespace {

constexpr const char* kReport = "4 report of cudaGraphInstantiateWithParams [header]";
constexpr const char* kUnfreed = "4 relaunch with unfreed graph allocations [header]";

Answer launched(cudaError_t code = cudaSuccess) { return returns("cudaGraphLaunch", code); }

std::vector<Case> instantiate_cases() {
  return {{"instantiate.fine",
           kReport,
           {returns("cudaGraphInstantiateWithParams", cudaSuccess), gives("result_out", cudaGraphInstantiateSuccess)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             add_set(r, graph, make_int(r), 1);
             record_instantiate(r, graph);
           }},
          by_foreign_test({"instantiate.cycle",
                           kReport,
                           {returns("cudaGraphInstantiateWithParams", kInvalid),
                            gives("result_out", cudaGraphInstantiateInvalidStructure)},
                           [](Recorder& r) {
                             const cudaGraph_t graph = make_graph(r);
                             const cudaGraphNode_t a = add(r, graph, empty_params()),
                                                   b = add(r, graph, empty_params(), {a});
                             r.need("cudaGraphAddDependencies", cudaGraphAddDependencies(graph, &b, &a, nullptr, 1));
                             record_instantiate(r, graph);
                           }}),
          {"instantiate.error_node",
           kReport,
           {returns("cudaGraphInstantiateWithParams", kInvalid), gives("type of errNode_out", cudaGraphNodeTypeHost)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             add_set(r, graph, make_int(r), 1);
             add(r, graph, host_params([](void*) {}, nullptr));
             cudaGraphInstantiateParams params = {};
             params.flags = cudaGraphInstantiateFlagDeviceLaunch;
             cudaGraphExec_t exec = nullptr;
             r.call("cudaGraphInstantiateWithParams", cudaGraphInstantiateWithParams(&exec, graph, &params));
             r.value("type of errNode_out", params.errNode_out == nullptr ? -1 : type_of(r, params.errNode_out));
           }},
          {.name = "instantiate.device_launch_of_two_devices",
           .row = "4 report, result 4 [header]",
           .expected = {returns("cudaGraphInstantiateWithParams", kInvalid),
                        gives("result_out", cudaGraphInstantiateMultipleDevicesNotSupported)},
           .run =
               [](Recorder& r) {
                 const cudaGraph_t graph = make_graph(r);
                 add_set(r, graph, make_int(r), 1);
                 r.need("cudaSetDevice", cudaSetDevice(1));
                 r.need("load_kernels", load_kernels());
                 add_set(r, graph, make_int(r), 1);
                 r.need("cudaSetDevice", cudaSetDevice(0));
                 record_instantiate(r, graph, cudaGraphInstantiateFlagDeviceLaunch);
               },
           .devices = 2}};
}

// Flags that cudaGraphInstantiate takes or not, for a graph of one kernel.
Case flags(const char* name, unsigned long long value, bool legal) {
  return {std::string("flags.") + name,
          "4 flags [header]",
          {returns("cudaGraphInstantiate", legal ? cudaSuccess : kInvalid)},
          [=](Recorder& r) {
            const cudaGraph_t graph = make_graph(r);
            add_set(r, graph, make_int(r), 1);
            cudaGraphExec_t exec = nullptr;
            r.call("cudaGraphInstantiate", cudaGraphInstantiate(&exec, graph, value));
          }};
}

std::vector<Case> flag_cases() {
  return {flags("auto_free", cudaGraphInstantiateFlagAutoFreeOnLaunch, true),
          flags("device_launch", cudaGraphInstantiateFlagDeviceLaunch, true),
          flags("node_priority", cudaGraphInstantiateFlagUseNodePriority, true),
          flags("upload_needs_params", cudaGraphInstantiateFlagUpload, false),
          flags("auto_free_and_device_launch",
                cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagDeviceLaunch, false),
          {"flags.upload",
           "4 flags [header]",
           {returns("cudaGraphInstantiateWithParams", cudaSuccess), gives("result_out", cudaGraphInstantiateSuccess)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             add_set(r, graph, make_int(r), 1);
             cudaGraphExec_t exec = nullptr;
             cudaGraphInstantiateParams params = {};
             params.flags = cudaGraphInstantiateFlagUpload;
             params.uploadStream = make_stream(r);
             r.call("cudaGraphInstantiateWithParams", cudaGraphInstantiateWithParams(&exec, graph, &params));
             r.value("result_out", params.result_out);
           }}};
}

std::vector<Case> allocation_cases() {
  return {{"launch.unfreed_allocation",
           kUnfreed,
           {launched(), launched(kInvalid)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             add(r, graph, alloc_params(256));
             const cudaGraphExec_t exec = instantiate(r, graph);
             const cudaStream_t stream = make_stream(r);
             r.call("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
             r.call("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
           }},
          {"launch.unfreed_allocation_auto_free",
           kUnfreed,
           {launched(), launched()},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             add(r, graph, alloc_params(256));
             cudaGraphExec_t exec = nullptr;
             r.need("cudaGraphInstantiate",
                    cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
             const cudaStream_t stream = make_stream(r);
             r.call("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
             r.call("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
           }},
          {"launch.allocation_freed_by_the_stream",
           kUnfreed,
           {launched(), returns("cudaFreeAsync", cudaSuccess), launched()},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             cudaGraphNodeParams params = alloc_params(256);
             cudaGraphNode_t node = nullptr;
             r.need("cudaGraphAddNode", add_node(&node, graph, params));
             const cudaGraphExec_t exec = instantiate(r, graph);
             const cudaStream_t stream = make_stream(r);
             r.call("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
             r.call("cudaFreeAsync", cudaFreeAsync(params.alloc.dptr, stream));
             r.call("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
           }}};
}

std::vector<Case> queue_cases() {
  return {{"launch.too_many_threads",
           "11 a launch error outside of captures [unverified]",
           {returns("kernel launch", cudaErrorInvalidValue), returns("cudaGetLastError", cudaErrorInvalidValue),
            returns("cudaGetLastError", cudaSuccess)},
           [](Recorder& r) {
             int* memory = make_int(r);
             r.call("kernel launch", launch_with_threads(make_stream(r), memory, 4096));
             r.call("cudaGetLastError", cudaGetLastError());
             r.call("cudaGetLastError", cudaGetLastError());
           }},
          {"launch.upload",
           "4 upload [header]",
           {returns("cudaGraphUpload", cudaSuccess)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             add_set(r, graph, make_int(r), 1);
             r.call("cudaGraphUpload", cudaGraphUpload(instantiate(r, graph), make_stream(r)));
           }},
          {"launch.exec_waits_for_itself",
           "4 launch: an exec serializes with itself across streams [header]",
           {gives("additions", 16)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = make_graph(r);
             add_add(r, graph, memory, 1);
             const cudaGraphExec_t exec = instantiate(r, graph);
             const cudaStream_t streams[] = {make_stream(r), make_stream(r)};
             for (int i = 0; i < 16; ++i) r.need("cudaGraphLaunch", cudaGraphLaunch(exec, streams[i % 2]));
             r.value("additions", read_int(r, memory));
           }},
          by_foreign_test({"launch.records_the_events_of_its_nodes",
                           "4 launch: each launch records the events of its nodes [foreign tests]",
                           {gives("launches seen", 100)},
                           [](Recorder& r) {
                             int *memory = make_int(r), *copied = make_pinned(r), seen = 0;
                             const cudaGraph_t graph = make_graph(r);
                             const cudaEvent_t event = make_event(r);
                             add(r, graph, event_record_params(event), {add_add(r, graph, memory, 1)});
                             const cudaGraphExec_t exec = instantiate(r, graph);
                             const cudaStream_t stream = make_stream(r), other = make_stream(r);
                             for (int i = 1; i <= 100; ++i) {
                               r.need("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
                               r.need("cudaStreamWaitEvent", cudaStreamWaitEvent(other, event, 0));
                               r.need("cudaMemcpyAsync",
                                      cudaMemcpyAsync(copied, memory, sizeof(int), cudaMemcpyDeviceToHost, other));
                               r.need("cudaStreamSynchronize", cudaStreamSynchronize(other));
                               seen += *copied == i;
                             }
                             r.value("launches seen", seen);
                           }}),
          {"launch.update_leaves_queued_launches",
           "4 updates never affect queued launches [header, doc]",
           {gives("added", 11)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t one = make_graph(r), ten = make_graph(r);
             add_add(r, one, memory, 1);
             add_add(r, ten, memory, 10);
             const cudaGraphExec_t exec = instantiate(r, one);
             const cudaStream_t stream = make_stream(r);
             r.need("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
             cudaGraphExecUpdateResultInfo info = {};
             r.need("cudaGraphExecUpdate", cudaGraphExecUpdate(exec, ten, &info));
             r.need("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
             r.value("added", read_int(r, memory));
           }}};
}

std::vector<Case> destroy_cases() {
  return {{"launch.graph_destroyed_before",
           "4 cudaGraphDestroy after instantiation [header]",
           {returns("cudaGraphDestroy", cudaSuccess), launched(), gives("set", 1)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = make_graph(r);
             add_set(r, graph, memory, 1);
             const cudaGraphExec_t exec = instantiate(r, graph);
             r.call("cudaGraphDestroy", cudaGraphDestroy(graph));
             r.call("cudaGraphLaunch", cudaGraphLaunch(exec, make_stream(r)));
             r.value("set", read_int(r, memory));
           }},
          {"launch.exec_destroyed_while_queued",
           "4 cudaGraphExecDestroy while it runs [doc]",
           {launched(), returns("cudaGraphExecDestroy", cudaSuccess), gives("set", 1)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = make_graph(r);
             add_set(r, graph, memory, 1);
             const cudaGraphExec_t exec = instantiate(r, graph);
             r.call("cudaGraphLaunch", cudaGraphLaunch(exec, make_stream(r)));
             r.call("cudaGraphExecDestroy", cudaGraphExecDestroy(exec));
             r.value("set", read_int(r, memory));
           }}};
}

}  // namespace

std::vector<Case> launch_cases() {
  std::vector<Case> cases = instantiate_cases();
  for (const auto& part : {flag_cases(), allocation_cases(), queue_cases(), destroy_cases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

}  // namespace conformance
