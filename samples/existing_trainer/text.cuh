// A text as numbers of its characters, and batches of it that go to the device.
#pragma once

#include <cstring>
#include <fstream>
#include <iterator>

#include "cuda_support.cuh"
#include "parameters.cuh"

struct Text {
  std::vector<int> tokens;
  int vocabulary = 0;  // different bytes in the text
};

inline Text read_text(const std::string& path, int context) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || bytes.empty()) {
    throw std::runtime_error("cannot read a text from " + path + ": name a file that is not empty with --text FILE");
  }
  if (bytes.size() < static_cast<std::size_t>(context) + 2) {
    throw std::runtime_error(path + " has " + std::to_string(bytes.size()) + " bytes, too few for a context of " +
                             std::to_string(context) + ": name a longer file with --text, or give a smaller --context");
  }
  Text text;
  int number_of[256];
  std::memset(number_of, -1, sizeof number_of);
  for (const char byte : bytes) number_of[static_cast<unsigned char>(byte)] = 0;
  for (int& number : number_of) {
    if (number == 0) number = text.vocabulary++;
  }
  for (const char byte : bytes) text.tokens.push_back(number_of[static_cast<unsigned char>(byte)]);
  return text;
}

// Copies random pieces of a text to one place on the device, step after step. The host goes ahead of the device by as
// many batches as there are slots of pinned memory.
class Batches {
 public:
  Batches(const Text& text, const Shape& shape, std::uint64_t seed) : text_(text), shape_(shape), random_(seed) {
    for (Slot& slot : slots_) {
      CHECK(cudaMallocHost(reinterpret_cast<void**>(&slot.tokens), bytes()));
      CHECK(cudaEventCreateWithFlags(&slot.copied, cudaEventDisableTiming));
    }
  }
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;
  ~Batches() {
    for (Slot& slot : slots_) {
      if (slot.copied != nullptr) {
        cudaEventSynchronize(slot.copied);
        cudaEventDestroy(slot.copied);
      }
      cudaFreeHost(slot.tokens);
    }
  }

  // Enqueues the copy of the next batch, [batch, context + 1] tokens.
  void copy_next(int* device_tokens, cudaStream_t stream) {
    Slot& slot = slots_[next_++ % kSlots];
    CHECK(cudaEventSynchronize(slot.copied));  // the copy that last read this slot
    const int length = shape_.context + 1;
    for (int b = 0; b < shape_.batch; ++b) {
      const std::size_t start = random_.next() % (text_.tokens.size() - static_cast<std::size_t>(length) + 1);
      std::memcpy(slot.tokens + b * length, text_.tokens.data() + start,
                  sizeof(int) * static_cast<std::size_t>(length));
    }
    CHECK(cudaMemcpyAsync(device_tokens, slot.tokens, bytes(), cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(slot.copied, stream));
  }

 private:
  static constexpr std::size_t kSlots = 4;
  struct Slot {
    int* tokens = nullptr;
    cudaEvent_t copied = nullptr;
  };
  std::size_t bytes() const { return sizeof(int) * static_cast<std::size_t>(shape_.batch * (shape_.context + 1)); }

  const Text& text_;
  Shape shape_;
  Random random_;
  Slot slots_[kSlots];
  std::size_t next_ = 0;
};
