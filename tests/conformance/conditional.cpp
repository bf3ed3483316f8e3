// 3: handles, bodies and what is refused; the types allowed in bodies are in nodes.cpp.
#include "conformance/scene.h"

namespace conformance {
namespace {

Case size(const char* name, cudaGraphConditionalNodeType type, unsigned count, bool legal) {
  return {std::string("conditional_size.") + name,
          "3 sizes of IF, WHILE and SWITCH [header]",
          {returns("cudaGraphAddNode", legal ? cudaSuccess : kInvalid)},
          [=](Recorder& r) {
            const cudaGraph_t graph = make_graph(r);
            cudaGraphNodeParams params = conditional_params(make_handle(r, graph), type, count);
            cudaGraphNode_t node = nullptr;
            r.call("cudaGraphAddNode", add_node(&node, graph, params));
          }};
}

std::vector<Case> size_cases() {
  return {size("if_0", kIf, 0, false),       size("if_1", kIf, 1, true),          size("if_2", kIf, 2, true),
          size("if_3", kIf, 3, false),       size("while_0", kWhile, 0, false),   size("while_1", kWhile, 1, true),
          size("while_2", kWhile, 2, false), size("switch_0", kSwitch, 0, false), size("switch_1", kSwitch, 1, true),
          size("switch_5", kSwitch, 5, true)};
}

std::vector<Case> handle_cases() {
  return {{"handle.unused",
           "3 handle; 4 result 5: may fail [header]",
           {returns("cudaGraphInstantiateWithParams", kInvalid),
            gives("result_out", cudaGraphInstantiateConditionalHandleUnused)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             make_handle(r, graph);
             record_instantiate(r, graph);
           }},
          {"handle.used_twice",
           "3 handle: exactly one conditional [header]",
           {returns("cudaGraphAddNode", kInvalid)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             const cudaGraphConditionalHandle handle = make_handle(r, graph);
             add_conditional(r, graph, handle, kIf, 1);
             cudaGraphNodeParams params = conditional_params(handle, kIf, 1);
             cudaGraphNode_t node = nullptr;
             r.call("cudaGraphAddNode", add_node(&node, graph, params));
           }},
          {"handle.of_another_graph",
           "3 handle: in that graph or a descendant [header]",
           {returns("cudaGraphAddNode", kInvalid)},
           [](Recorder& r) {
             cudaGraphNodeParams params = conditional_params(make_handle(r, make_graph(r)), kIf, 1);
             cudaGraphNode_t node = nullptr;
             r.call("cudaGraphAddNode", add_node(&node, make_graph(r), params));
           }},
          {"handle.used_in_a_descendant",
           "3 handle: in that graph or a descendant [header]",
           {returns("cudaGraphAddNode", cudaSuccess), returns("cudaGraphInstantiateWithParams", cudaSuccess),
            gives("result_out", cudaGraphInstantiateSuccess)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             const auto outer = add_conditional(r, graph, make_handle(r, graph), kIf, 1);
             cudaGraphNodeParams params = conditional_params(make_handle(r, graph), kIf, 1);
             cudaGraphNode_t node = nullptr;
             r.call("cudaGraphAddNode", add_node(&node, outer.bodies[0], params));
             record_instantiate(r, graph);
           }},
          {"handle.unknown_flag",
           "3 handle: flags 0 or AssignDefault [header]",
           {returns("cudaGraphConditionalHandleCreate", kInvalid)},
           [](Recorder& r) {
             cudaGraphConditionalHandle handle = 0;
             r.call("cudaGraphConditionalHandleCreate", cudaGraphConditionalHandleCreate(&handle, make_graph(r), 0, 2));
           }}};
}

// A body filled by `fill`; what instantiation says.
Case body(const char* name, const char* row, bool legal, const std::function<void(Recorder&, cudaGraph_t)>& fill) {
  return {std::string("body.") + name,
          row,
          {returns("cudaGraphInstantiateWithParams", legal ? cudaSuccess : kInvalid),
           gives("result_out", legal ? cudaGraphInstantiateSuccess : cudaGraphInstantiateNodeOperationNotSupported)},
          [=](Recorder& r) {
            const cudaGraph_t graph = make_graph(r);
            fill(r, add_conditional(r, graph, make_handle(r, graph), kIf, 1).bodies[0]);
            record_instantiate(r, graph);
          }};
}

cudaGraph_t host_graph(Recorder& r) {
  const cudaGraph_t graph = make_graph(r);
  add(r, graph, host_params([](void*) {}, nullptr));
  return graph;
}

std::vector<Case> body_cases() {
  constexpr const char* kAllowed = "3 allowed in bodies, recursively [header, issue]";
  constexpr const char* kEvents = "1.4, 3 External events in bodies [header]";
  const auto clone = [](cudaGraph_t child) { return child_params(child, cudaGraphChildGraphOwnershipClone); };
  return {body("host_in_child", kAllowed, false,
               [clone](Recorder& r, cudaGraph_t inner) { add(r, inner, clone(host_graph(r))); }),
          body("host_in_nested_body", kAllowed, false,
               [](Recorder& r, cudaGraph_t inner) {
                 const auto nested = add_conditional(r, inner, make_handle(r, inner), kWhile, 1);
                 add(r, nested.bodies[0], host_params([](void*) {}, nullptr));
               }),
          body("captured_host_function", kAllowed, false,
               [](Recorder& r, cudaGraph_t inner) {
                 capture_into(r, inner, [&r](cudaStream_t stream) {
                   r.need("cudaLaunchHostFunc", cudaLaunchHostFunc(
                                                    stream, [](void*) {}, nullptr));
                 });
               }),
          body("captured_external_record", kEvents, false,
               [](Recorder& r, cudaGraph_t inner) {
                 const cudaEvent_t event = make_event(r);
                 capture_into(r, inner, [&r, event](cudaStream_t stream) {
                   r.need("cudaEventRecordWithFlags", cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
                 });
               }),
          body("captured_external_wait", kEvents, false,
               [](Recorder& r, cudaGraph_t inner) {
                 const cudaEvent_t event = make_event(r);
                 capture_into(r, inner, [&r, event](cudaStream_t stream) {
                   r.need("cudaStreamWaitEvent", cudaStreamWaitEvent(stream, event, cudaEventWaitExternal));
                 });
               }),
          body("captured_kernel", "3 bodies: filled by BeginCaptureToGraph [header]", true,
               [](Recorder& r, cudaGraph_t inner) {
                 int* memory = make_int(r);
                 capture_into(r, inner, [&r, memory](cudaStream_t stream) {
                   r.need("kernel launch", launch_set(stream, memory, 1));
                 });
               }),
          body("programmatic_launch", "2 Edge data; 3 bodies name no edges they forbid [unverified]", true,
               [](Recorder& r, cudaGraph_t inner) {
                 int* memory = make_int(r);
                 capture_into(r, inner, [&r, memory](cudaStream_t stream) {
                   r.need("kernel launch", launch_set(stream, memory, 1));
                   r.need("kernel launch", launch_add_programmatic(stream, memory, 1));
                 });
               }),
          body("cooperative_kernel", "3 cooperative kernels in bodies, without MPS [doc]", true,
               [](Recorder& r, cudaGraph_t inner) {
                 const cudaGraphNode_t node = add_set(r, inner, make_int(r), 1);
                 cudaKernelNodeAttrValue value = {};
                 value.cooperative = 1;
                 r.need("cudaGraphKernelNodeSetAttribute",
                        cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeCooperative, &value));
               }),
          body("nested", "3 nesting [doc]", true, [](Recorder& r, cudaGraph_t inner) {
            for (int depth = 0; depth < 4; ++depth) {
              inner = add_conditional(r, inner, make_handle(r, inner), kIf, 1).bodies[0];
            }
            add_set(r, inner, make_int(r), 1);
          })};
}

std::vector<Case> stream_cases() {
  return {{"body.stream_of_the_parent",
           "3 a stream that joined the parent's capture, used in a body's [issue]",
           {returns("cudaStreamWaitEvent", cudaErrorStreamCaptureMerge, Status::kInvalidated)},
           [](Recorder& r) {
             const cudaStream_t stream = make_capturing(r), joined = make_stream(r);
             join(r, stream, joined);
             const cudaGraph_t graph = captured_graph(r, stream);
             const auto made = add_conditional(r, graph, make_handle(r, graph), kIf, 1);
             const cudaStream_t inner = make_stream(r);
             r.need("cudaStreamBeginCaptureToGraph",
                    cudaStreamBeginCaptureToGraph(inner, made.bodies[0], nullptr, nullptr, 0,
                                                  cudaStreamCaptureModeThreadLocal));
             const cudaEvent_t event = make_event(r);
             r.need("cudaEventRecord", cudaEventRecord(event, inner));
             r.watch(inner);
             r.call("cudaStreamWaitEvent", cudaStreamWaitEvent(joined, event, 0));
           }},
          {.name = "body.two_devices",
           .row = "3 all nodes of a body on one device [header; the result by analogy with in_body.memcpy_pageable, of "
                  "which an H100 says \"must use the same context\"]",
           .expected = {returns("cudaGraphInstantiateWithParams", kInvalid),
                        gives("result_out", cudaGraphInstantiateMultipleDevicesNotSupported)},
           .run =
               [](Recorder& r) {
                 const cudaGraph_t graph = make_graph(r);
                 const auto made = add_conditional(r, graph, make_handle(r, graph), kIf, 1);
                 add_set(r, made.bodies[0], make_int(r), 1);
                 r.need("cudaSetDevice", cudaSetDevice(1));
                 r.need("load_kernels", load_kernels());
                 add_set(r, made.bodies[0], make_int(r), 1);
                 r.need("cudaSetDevice", cudaSetDevice(0));
                 record_instantiate(r, graph);
               },
           .devices = 2}};
}

}  // namespace

std::vector<Case> conditional_cases() {
  std::vector<Case> cases = by_foreign_test(size_cases());
  for (const auto& part : {handle_cases(), body_cases(), stream_cases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

}  // namespace conformance
