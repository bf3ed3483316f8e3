// 3: which bodies run, and how often.
#include "conformance/scene.h"

namespace conformance {
namespace {

// A conditional whose body i sets a number to 10 + i; 0 is no body.
Case choice(const char* name, const char* row, cudaGraphConditionalNodeType type, unsigned size, unsigned value,
            int number) {
  return {std::string("choice.") + name, row, {gives("set by the body", number)}, [=](Recorder& r) {
            int* memory = make_int(r);
            const cudaGraph_t graph = make_graph(r);
            const auto made = add_conditional(r, graph, make_handle(r, graph, value), type, size);
            for (unsigned i = 0; i < size; ++i) add_set(r, made.bodies[i], memory, 10 + static_cast<int>(i));
            launch(r, instantiate(r, graph), make_stream(r));
            r.value("set by the body", read_int(r, memory));
          }};
}

std::vector<Case> choice_cases() {
  constexpr const char* kIfRow = "3 IF: body 0 if not 0, body 1 if 0 [header]";
  constexpr const char* kSwitchRow = "3 SWITCH: a value of size or more runs nothing [header]";
  return {choice("if_0_of_1", kIfRow, kIf, 1, 0, 0),
          choice("if_7_of_1", kIfRow, kIf, 1, 7, 10),
          choice("if_0_of_2", kIfRow, kIf, 2, 0, 11),
          choice("if_1_of_2", kIfRow, kIf, 2, 1, 10),
          choice("switch_0", kSwitchRow, kSwitch, 3, 0, 10),
          choice("switch_2", kSwitchRow, kSwitch, 3, 2, 12),
          choice("switch_3_of_3", kSwitchRow, kSwitch, 3, 3, 0)};
}

// A loop whose body counts to `limit` and then clears its condition.
Case loop(const char* name, const char* row, unsigned first, int limit, int launches, int count) {
  return {std::string("loop.") + name, row, {gives("iterations", count)}, [=](Recorder& r) {
            int *counter = make_int(r), *iterations = make_int(r);
            const cudaGraph_t graph = make_graph(r);
            const cudaGraphConditionalHandle handle = make_handle(r, graph, first);
            const auto made = add_conditional(r, graph, handle, kWhile, 1);
            capture_into(r, made.bodies[0], [&](cudaStream_t stream) {
              r.need("kernel launch", launch_add(stream, iterations, 1));
              r.need("kernel launch", launch_step(stream, counter, limit, handle));
            });
            launch(r, instantiate(r, graph), make_stream(r), launches);
            r.value("iterations", read_int(r, iterations));
          }};
}

std::vector<Case> loop_cases() {
  constexpr const char* kTest = "3 WHILE: tested before the first run and after each [header, doc]";
  constexpr const char* kDefault = "3 default: assigned at every launch [doc]";
  return {loop("never", kTest, 0, 5, 1, 0), loop("five_times", kTest, 1, 5, 1, 5),
          // After its first launch the counter is past the limit: each later launch runs the body once.
          loop("default_at_each_launch", kDefault, 1, 5, 3, 7)};
}

// A SWITCH in a WHILE: each iteration decides which body the next one runs. The bodies add 1, 10 and 100.
Case switch_in_a_loop() {
  return {"choice.switch_in_a_loop",
          "3 SWITCH: the value set last decides; a value of size or more runs nothing [header]",
          {gives("added", 111)},
          [](Recorder& r) {
            int *counter = make_int(r), *sum = make_int(r);
            const cudaGraph_t graph = make_graph(r);
            const cudaGraphConditionalHandle again = make_handle(r, graph, 1);
            const auto outer = add_conditional(r, graph, again, kWhile, 1);
            const cudaGraphConditionalHandle which = make_handle(r, outer.bodies[0], 0);
            const auto inner = add_conditional(r, outer.bodies[0], which, kSwitch, 3);
            for (unsigned i = 0, value = 1; i < 3; ++i, value *= 10)
              add_add(r, inner.bodies[i], sum, static_cast<int>(value));
            const cudaStream_t stream = make_stream(r);
            r.need("cudaStreamBeginCaptureToGraph",
                   cudaStreamBeginCaptureToGraph(stream, outer.bodies[0], &inner.node, nullptr, 1,
                                                 cudaStreamCaptureModeThreadLocal));
            // The counter becomes 1, 2, 3 and 4, so that the last iteration runs no body.
            r.need("kernel launch", launch_step(stream, counter, 4, again));
            r.need("kernel launch", launch_decide(stream, counter, which));
            end(r, stream);
            launch(r, instantiate(r, graph), stream);
            r.value("added", read_int(r, sum));
          }};
}

std::vector<Case> other_cases() {
  return {switch_in_a_loop(),
          {"loop.nested_if_keeps_its_value",
           "3 default of an IF in a WHILE: not per iteration [unverified, inferred]",
           {gives("runs of the IF", 1)},
           [](Recorder& r) {
             int *counter = make_int(r), *runs = make_int(r), *zero = make_int(r);
             const cudaGraph_t graph = make_graph(r);
             const cudaGraphConditionalHandle again = make_handle(r, graph, 1);
             const auto outer = add_conditional(r, graph, again, kWhile, 1);
             const cudaGraphConditionalHandle once = make_handle(r, outer.bodies[0], 1);
             const auto inner = add_conditional(r, outer.bodies[0], once, kIf, 1);
             capture_into(r, inner.bodies[0], [&](cudaStream_t stream) {
               r.need("kernel launch", launch_add(stream, runs, 1));
               r.need("kernel launch", launch_decide(stream, zero, once));
             });
             const cudaStream_t stream = make_stream(r);
             r.need("cudaStreamBeginCaptureToGraph",
                    cudaStreamBeginCaptureToGraph(stream, outer.bodies[0], &inner.node, nullptr, 1,
                                                  cudaStreamCaptureModeThreadLocal));
             r.need("kernel launch", launch_step(stream, counter, 3, again));
             end(r, stream);
             launch(r, instantiate(r, graph), stream);
             r.value("runs of the IF", read_int(r, runs));
           }},
          {"loop.bodies_array_stays",
           "3 bodies: the array is CUDA's, for the node's lifetime [header]",
           {gives("same body", 1)},
           [](Recorder& r) {
             const cudaGraph_t graph = make_graph(r);
             cudaGraphNodeParams params = conditional_params(make_handle(r, graph), kSwitch, 2);
             cudaGraphNode_t node = nullptr;
             r.need("cudaGraphAddNode", add_node(&node, graph, params));
             const cudaGraph_t second = params.conditional.phGraph_out[1];
             add_set(r, second, make_int(r), 1);
             r.value("same body", params.conditional.phGraph_out[1] == second && node_count(r, second) == 1);
           }},
          {"loop.child_graph_in_a_body",
           "3 allowed in bodies: a child graph runs [header]",
           {gives("added", 6)},
           [](Recorder& r) {
             int *counter = make_int(r), *sum = make_int(r);
             const cudaGraph_t graph = make_graph(r), child = make_graph(r);
             add_add(r, child, sum, 2);
             const cudaGraphConditionalHandle handle = make_handle(r, graph, 1);
             const auto made = add_conditional(r, graph, handle, kWhile, 1);
             add(r, made.bodies[0], child_params(child, cudaGraphChildGraphOwnershipClone));
             capture_into(r, made.bodies[0], [&](cudaStream_t stream) {
               r.need("kernel launch", launch_step(stream, counter, 3, handle));
             });
             launch(r, instantiate(r, graph), make_stream(r));
             r.value("added", read_int(r, sum));
           }}};
}

}  // namespace

std::vector<Case> conditional_run_cases() {
  std::vector<Case> cases = choice_cases();
  for (const auto& part : {loop_cases(), other_cases()}) cases.insert(cases.end(), part.begin(), part.end());
  return cases;
}

}  // namespace conformance
