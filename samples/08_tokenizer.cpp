// Raw text is the input of a training step. The tokenizer exists only as a CPU body, and still is part of the one
// launch.
#include <graphsink/graphsink.h>

#include <algorithm>
#include <cctype>
#include <iostream>

#include "samples/models/source_dir.h"
namespace gs = graphsink;

namespace {

constexpr std::int64_t kBuckets = 512, kBytes = 64, kWords = 16;

// u8 [n, bytes] -> i32 [n, words]. The result holds the last words of each line of text, each hashed to a bucket by
// FNV-1a. If a line has fewer words, the first elements are 0.
void infer(gs::InferArgs& a) {
  a.expect_inputs(1);
  if (a.in(0).dtype != gs::u8) a.fail("takes u8", "feed the bytes of the text");
  a.out(gs::i32, {a.in(0).shape[0], kWords});
}
void tokenize(const gs::CpuArgs& a) {
  std::int64_t lines = a.in_type(0).shape[0], bytes = a.in_type(0).shape[1];
  for (std::int64_t line = 0; line < lines; ++line) {
    const auto* text = a.in<std::uint8_t>(0) + line * bytes;
    auto* tokens = a.out<std::int32_t>(0) + line * kWords;
    std::fill_n(tokens, kWords, 0);
    std::int64_t word = kWords, i = bytes;
    while (word > 0 && i > 0) {
      while (i > 0 && !std::isalpha(text[i - 1])) --i;
      std::uint32_t hash = 2166136261u;
      std::int64_t end = i;
      for (; i > 0 && std::isalpha(text[i - 1]); --i) hash = (hash ^ text[i - 1]) * 16777619u;
      if (i < end) tokens[--word] = static_cast<std::int32_t>(1 + hash % (kBuckets - 1));
    }
  }
}
const gs::OpDef tokenize_op{.name = "tokenize", .infer = infer, .bodies = {tokenize}};

}  // namespace

int main(int argc, char** argv) try {
  gs::Text text = gs::read_text(argc > 1 ? argv[1] : std::string(gs::source_dir()) + "/LICENSE");
  constexpr std::int64_t kLines = 32, kSteps = 200;
  auto vocabulary = static_cast<std::int64_t>(text.vocabulary.size());

  // Predicts the next character from the words so far.
  gs::Graph g;
  gs::Value bytes = g.feed("bytes", gs::u8, {kLines, kBytes}), next = g.feed("next", gs::i32, {kLines});
  gs::Variable table("table", gs::Tensor::uniform({kBuckets, 16}, 1, -0.5f, 0.5f));
  gs::Variable w("w", gs::Tensor::kaiming({kWords * 16, vocabulary}, 2));
  gs::Value words = embedding(table, gs::emit(tokenize_op, {bytes})[0]);
  gs::Value loss = cross_entropy(matmul(reshape(words, {kLines, kWords * 16}), w), next);
  gs::adamw(loss, {table, w}, {.lr = 1e-2});
  g.record("loss", loss);

  gs::Program program = gs::compile(g, {.target = gs::cuda_device_count() > 0 ? gs::cuda(0) : gs::cpu()});
  std::cout << program.explain();
  gs::Tensor all_bytes(gs::u8, {kSteps, kLines, kBytes}), all_next(gs::i32, {kSteps, kLines});
  auto places = static_cast<std::int64_t>(text.tokens.size()) - kBytes - 1;
  for (std::int64_t i = 0; i < kSteps * kLines; ++i) {
    std::int64_t place = i * 7919 % places;
    for (std::int64_t k = 0; k < kBytes; ++k)
      all_bytes.as<std::uint8_t>()[static_cast<std::size_t>(i * kBytes + k)] = static_cast<std::uint8_t>(
          text.vocabulary[static_cast<std::size_t>(text.tokens[static_cast<std::size_t>(place + k)])]);
    all_next.as<std::int32_t>()[static_cast<std::size_t>(i)] = text.tokens[static_cast<std::size_t>(place + kBytes)];
  }
  program.write(bytes, all_bytes);
  program.write(next, all_next);
  program.run(gs::sink, {.steps = kSteps});
  std::vector<float> losses = program.records("loss");
  std::cout << kSteps << " steps on " << text.source << ", loss " << losses.front() << " -> " << losses.back() << "\n";
  if (auto captured = program.captured(); captured && captured->host_nodes > 0)
    std::cout << "the launch holds " << captured->host_nodes << " host node\n";
  return std::cout.flush() ? 0 : 2;  // a full disk would lose what was printed
} catch (const gs::Error& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 2;
}
