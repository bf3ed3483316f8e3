// Steps that fail, what stays of them, and how to find the op: docs/guarantees.md and docs/how-to/wrong-number.md.
#include <graphsink/graphsink.h>

#include <atomic>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>
namespace gs = graphsink;

static bool holds(bool is_true, const char* claim) {
  if (!is_true) std::cerr << "not so: " << claim << "\n";
  return is_true;
}

static bool failed_step() {
  gs::Graph g;
  gs::Variable table("table", gs::Tensor({10.0f, 20.0f, 30.0f})), sum("sum", gs::Tensor::scalar(0.0f));
  gs::Value i = g.feed("i", gs::i32, {});
  assign(sum, g.value(sum) + gather(g.value(table), reshape(i, {1}))[0]);
  g.record("sum", g.updated(sum));
  gs::Program program = gs::compile(g);
  // [failed]
  program.write(i, std::vector<std::int32_t>{0, 1, 12, 2});  // the third step reads row 12 of 3
  program.run(gs::sink, {.steps = 4});
  try {
    program.sync();
  } catch (const gs::Error& e) {
    if (e.code() != gs::ErrorCode::step_failed) throw;
    std::cout << e.what() << "\n";
  }
  // Two steps were committed. The failed one and the one behind it left nothing.
  std::cout << program.steps() << " steps, sum " << sum.read().at(0) << "\n";
  program.write(i, std::vector<std::int32_t>{2});
  program.run();  // goes on from there
  std::cout << program.steps() << " steps, sum " << sum.read().at(0) << "\n";
  // [failed]
  return holds(program.steps() == 3 && sum.read().at(0) == 60.0, "what was committed stays");
}

static bool not_finite() {
  gs::Graph g;
  // [finite]
  gs::Variable w("w", gs::Tensor({0.5f, 0.0f}));
  gs::Value loss = sum(log(g.value(w)) * 0.0 + 1.0);
  gs::sgd(loss, {w}, {.lr = 0.1});
  g.record("loss", loss);
  gs::Program program = gs::compile(g, {.check_finite = true});
  program.run();
  try {
    program.sync();
  } catch (const gs::Error& e) {
    std::cout << e.what() << "\n";  // names log, the element and the step
  }
  // [finite]
  return holds(program.steps() == 0 && w.read().at(0) == 0.5, "check_finite");
}

// [replay]
// An op that counts in a variable of the program: what it computes does not depend on its inputs alone.
static std::atomic<int> calls = 0;
static void infer(gs::InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); }
static void count(const gs::CpuArgs& a) { a.out<float>(0)[0] = a.in<float>(0)[0] + static_cast<float>(++calls); }
static const gs::OpDef counted_op{.name = "counted", .infer = infer, .bodies = {count}};

static std::string audit() {
  gs::Graph g;
  gs::Variable w("w", gs::Tensor({0.0f}));
  assign(w, gs::emit(counted_op, {g.value(w)})[0]);
  gs::Program program = gs::compile(g, {.guards = {.replay_every = 1}});  // every sunk run is repeated op by op
  try {
    program.run();
  } catch (const gs::Error& e) {
    return e.what();
  }
  return "no difference";
}
// [replay]

static bool modes() {
  // [modes]
  std::vector<std::vector<float>> losses;
  for (gs::Mode mode : {gs::interactive, gs::interactive_parallel, gs::sink}) {
    gs::Graph g;
    gs::Variable w("w", gs::Tensor::kaiming({64, 64}, 1));
    gs::Value x = g.constant(gs::Tensor::uniform({32, 64}, 2, -1.0f, 1.0f));
    gs::Value loss = mean(dropout(tanh(matmul(x, w)), 0.1));
    gs::adamw(loss, {w}, {.lr = 1e-3});
    g.record("loss", loss);
    gs::Program program = gs::compile(g, {.seed = 5});
    program.run(mode, {.steps = 20});
    losses.push_back(program.records("loss"));
  }
  const bool is_same = losses[0] == losses[1] && losses[0] == losses[2];  // bit for bit
  // [modes]
  return holds(is_same, "modes give the same bits");
}

static bool eager() {
  // [eager]
  gs::Eager eager;
  gs::Value x = eager.tensor({1, 2, 3});
  gs::Value y = x - mean(x);
  std::cout << "x - mean = " << y << "\n";  // computed already
  std::cout << "1 / that = " << 1.0 / y << "\n";
  // [eager]
  return holds(std::isinf(gs::Eager::read(1.0 / y).at(1)), "a division by 0 is infinite");
}

int main() try {
  const bool is_good = failed_step() && not_finite() && modes() && eager();
  const std::string difference = audit();
  std::cout << difference << "\n";
  return is_good && difference.find("replay audit") != std::string::npos ? 0 : 1;
} catch (const gs::Error& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
