// 2, the table of node types: what each may do, and the edges between nodes.
#include "conformance/scene.h"

namespace conformance {
namespace {

// A node of each type, for a graph of its own or a body.
cudaGraphNodeParams params_of_type(Recorder& r, cudaGraph_t graph, cudaGraphNodeType type) {
  static KernelArguments arguments(make_int(r), 1);
  switch (type) {
    case cudaGraphNodeTypeKernel:
      return kernel_params(set_address(), arguments);
    case cudaGraphNodeTypeMemcpy:
      return copy_params(make_int(r), make_int(r), 4, cudaMemcpyDeviceToDevice);
    case cudaGraphNodeTypeMemset:
      return fill_params(make_int(r), 1, 1);
    case cudaGraphNodeTypeHost:
      return host_params([](void*) {}, nullptr);
    case cudaGraphNodeTypeGraph: {
      const cudaGraph_t child = make_graph(r);
      add_set(r, child, make_int(r), 1);
      return child_params(child, cudaGraphChildGraphOwnershipClone);
    }
    case cudaGraphNodeTypeWaitEvent:
      return event_wait_params(make_event(r));
    case cudaGraphNodeTypeEventRecord:
      return event_record_params(make_event(r));
    case cudaGraphNodeTypeMemAlloc:
      return alloc_params(256);
    case cudaGraphNodeTypeConditional:
      return conditional_params(make_handle(r, graph), cudaGraphCondTypeIf, 1);
    default:
      return empty_params();
  }
}

cudaGraphNode_t add_of_type(Recorder& r, cudaGraph_t graph, cudaGraphNodeType type) {
  return add(r, graph, params_of_type(r, graph, type));
}

struct Type {
  const char* name;
  cudaGraphNodeType type;
  bool can_be_disabled;
  bool in_body;
  bool in_device_graph;
};

constexpr Type kTypes[] = {
    {"kernel", cudaGraphNodeTypeKernel, true, true, true},
    {"memcpy", cudaGraphNodeTypeMemcpy, true, true, true},
    {"memset", cudaGraphNodeTypeMemset, true, true, true},
    {"host", cudaGraphNodeTypeHost, false, false, false},
    {"child", cudaGraphNodeTypeGraph, false, true, true},
    {"empty", cudaGraphNodeTypeEmpty, false, true, false},
    {"wait_event", cudaGraphNodeTypeWaitEvent, false, false, false},
    {"event_record", cudaGraphNodeTypeEventRecord, false, false, false},
    {"mem_alloc", cudaGraphNodeTypeMemAlloc, false, false, false},
    {"conditional", cudaGraphNodeTypeConditional, false, true, false},
};

Case set_enabled(const Type& type) {
  std::vector<Answer> expected{returns("cudaGraphNodeSetEnabled", type.can_be_disabled ? cudaSuccess : kInvalid)};
  if (type.can_be_disabled) expected.push_back(gives("enabled", 0));
  return {std::string("set_enabled.") + type.name, "2 types, SetEnabled [header]", expected, [type](Recorder& r) {
            const cudaGraph_t graph = make_graph(r);
            const cudaGraphNode_t node = add_of_type(r, graph, type.type);
            const cudaGraphExec_t exec = instantiate(r, graph);
            r.call("cudaGraphNodeSetEnabled", cudaGraphNodeSetEnabled(exec, node, 0));
            if (!type.can_be_disabled) return;
            unsigned enabled = 1;
            r.need("cudaGraphNodeGetEnabled", cudaGraphNodeGetEnabled(exec, node, &enabled));
            r.value("enabled", enabled);
          }};
}

// The program may only learn at instantiation that a node cannot be there.
std::vector<Answer> instantiation(bool legal, cudaGraphInstantiateResult result) {
  return {returns("cudaGraphInstantiateWithParams", legal ? cudaSuccess : kInvalid),
          gives("result_out", legal ? cudaGraphInstantiateSuccess : result)};
}

// It may also learn when it adds the node; the sheet says that it does not.
std::vector<Answer> in_body_answers(bool legal, cudaGraphInstantiateResult result) {
  std::vector<Answer> answers = instantiation(legal, result);
  answers.insert(answers.begin(), returns("cudaGraphAddNode", cudaSuccess));
  return answers;
}

Case in_body(const char* name, bool legal, const std::function<cudaGraphNodeParams(Recorder&, cudaGraph_t)>& make,
             cudaGraphInstantiateResult result = cudaGraphInstantiateNodeOperationNotSupported) {
  return {std::string("in_body.") + name, "2 types, in conditional body; 3 allowed in bodies [header, issue]",
          in_body_answers(legal, result), [make](Recorder& r) {
            const cudaGraph_t graph = make_graph(r);
            const auto made = add_conditional(r, graph, make_handle(r, graph), cudaGraphCondTypeIf, 1);
            cudaGraphNodeParams params = make(r, made.bodies[0]);
            cudaGraphNode_t node = nullptr;
            r.call("cudaGraphAddNode", add_node(&node, made.bodies[0], params));
            record_instantiate(r, graph);
          }};
}

Case in_device_graph(const Type& type) {
  return {std::string("device_graph.") + type.name, "2 types, in device-launch graph; 4 result 3 [header, doc]",
          instantiation(type.in_device_graph, cudaGraphInstantiateNodeOperationNotSupported), [type](Recorder& r) {
            const cudaGraph_t graph = make_graph(r);
            add_of_type(r, graph, type.type);
            record_instantiate(r, graph, cudaGraphInstantiateFlagDeviceLaunch);
          }};
}

// Copies from the host: pinned memory only. Other memory counts as that of another device.
Case copy_in_body(const char* name, bool pinned) {
  const auto make = [pinned](Recorder& r, cudaGraph_t) {
    static int pageable = 1;
    return copy_params(make_int(r), pinned ? make_pinned(r) : &pageable, 4, cudaMemcpyHostToDevice);
  };
  return in_body(name, pinned, make, cudaGraphInstantiateMultipleDevicesNotSupported);
}

cudaGraphEdgeData edge(unsigned char from_port, unsigned char to_port, unsigned char type) {
  cudaGraphEdgeData data = {};
  data.from_port = from_port;
  data.to_port = to_port;
  data.type = type;
  return data;
}

constexpr const char* kEdges = "2 accepted edge tuples; (1,0,1) and (2,0,1) on devices of 9.0 and newer [issue-hw]";

Case edge_tuple(const char* name, cudaGraphEdgeData data, bool legal, cudaGraphNodeType from, cudaGraphNodeType to) {
  return {std::string("edge.") + name,
          kEdges,
          {returns("cudaGraphAddDependencies", legal ? cudaSuccess : kInvalid), gives("edges", legal)},
          [=](Recorder& r) {
            const cudaGraph_t graph = make_graph(r);
            const cudaGraphNode_t source = add_of_type(r, graph, from), target = add_of_type(r, graph, to);
            r.call("cudaGraphAddDependencies", cudaGraphAddDependencies(graph, &source, &target, &data, 1));
            r.value("edges", static_cast<long long>(edge_count(r, graph)));
          }};
}

std::vector<Case> edge_cases() {
  constexpr auto kKernel = cudaGraphNodeTypeKernel;
  constexpr auto kMemset = cudaGraphNodeTypeMemset;
  constexpr auto kEmpty = cudaGraphNodeTypeEmpty;
  return {edge_tuple("0_0_0", edge(0, 0, 0), true, kKernel, kKernel),
          edge_tuple("2_0_0", edge(2, 0, 0), true, kKernel, kKernel),
          edge_tuple("1_0_1", edge(1, 0, 1), true, kKernel, kKernel),
          edge_tuple("2_0_1", edge(2, 0, 1), true, kKernel, kKernel),
          edge_tuple("1_0_0", edge(1, 0, 0), false, kKernel, kKernel),
          edge_tuple("0_0_1", edge(0, 0, 1), false, kKernel, kKernel),
          edge_tuple("3_0_0", edge(3, 0, 0), false, kKernel, kKernel),
          edge_tuple("0_1_0", edge(0, 1, 0), false, kKernel, kKernel),
          edge_tuple("2_0_0_to_memset", edge(2, 0, 0), true, kKernel, kMemset),
          edge_tuple("2_0_0_to_empty", edge(2, 0, 0), true, kKernel, kEmpty),
          edge_tuple("2_0_0_from_memset", edge(2, 0, 0), false, kMemset, kKernel)};
}

std::vector<Case> edge_list_cases() {
  return {by_foreign_test({"edge.duplicate",
                           kEdges,
                           {returns("cudaGraphAddDependencies", kInvalid), gives("edges", 1)},
                           [](Recorder& r) {
                             const cudaGraph_t graph = make_graph(r);
                             const cudaGraphNode_t from = add(r, graph, empty_params()),
                                                   to = add(r, graph, empty_params(), {from});
                             r.call("cudaGraphAddDependencies",
                                    cudaGraphAddDependencies(graph, &from, &to, nullptr, 1));
                             r.value("edges", static_cast<long long>(edge_count(r, graph)));
                           }}),
          {"edge.twice_in_a_list",
           "2 a list of edges is added one by one until one is refused [the sheet has: atomic]",
           {returns("cudaGraphAddDependencies", kInvalid), gives("edges", 1)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             const cudaGraphNode_t a = add(r, graph, empty_params()), b = add(r, graph, empty_params());
             const cudaGraphNode_t from[] = {a, a}, to[] = {b, b};
             r.call("cudaGraphAddDependencies", cudaGraphAddDependencies(graph, from, to, nullptr, 2));
             r.value("edges", static_cast<long long>(edge_count(r, graph)));
           }},
          {"edge.bad_data_behind_a_good_edge",
           "2 edge data of a list is checked before any edge is added [unverified]",
           {returns("cudaGraphAddDependencies", kInvalid), gives("edges", 0)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             const cudaGraphNode_t a = add(r, graph, empty_params()), b = add(r, graph, empty_params()),
                                   c = add(r, graph, empty_params());
             const cudaGraphNode_t from[] = {a, b}, to[] = {b, c};
             const cudaGraphEdgeData data[] = {edge(0, 0, 0), edge(3, 0, 0)};
             r.call("cudaGraphAddDependencies", cudaGraphAddDependencies(graph, from, to, data, 2));
             r.value("edges", static_cast<long long>(edge_count(r, graph)));
           }},
          {"edge.removal_ignores_data",
           "2 cudaGraphRemoveDependencies [issue-hw]",
           {returns("cudaGraphRemoveDependencies", cudaSuccess), gives("edges", 0)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             const cudaGraphNode_t from = add_of_type(r, graph, cudaGraphNodeTypeKernel);
             const cudaGraphNode_t to = add(r, graph, empty_params(), {from});
             const cudaGraphEdgeData data = edge(2, 0, 0);
             r.call("cudaGraphRemoveDependencies", cudaGraphRemoveDependencies(graph, &from, &to, &data, 1));
             r.value("edges", static_cast<long long>(edge_count(r, graph)));
           }}};
}

}  // namespace

std::vector<Case> node_cases() {
  std::vector<Case> cases;
  for (const Type& type : kTypes) {
    cases.push_back(by_foreign_test(set_enabled(type)));
    cases.push_back(in_body(type.name, type.in_body,
                            [type](Recorder& r, cudaGraph_t body) { return params_of_type(r, body, type.type); }));
    cases.push_back(in_device_graph(type));
  }
  cases.push_back(copy_in_body("memcpy_pinned", true));
  cases.push_back(copy_in_body("memcpy_pageable", false));
  for (const auto& part : {edge_cases(), edge_list_cases()}) cases.insert(cases.end(), part.begin(), part.end());
  return cases;
}

}  // namespace conformance
