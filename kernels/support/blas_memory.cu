#include "kernels/support/blas_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "graphsink/error.h"
#include "kernels/support/blas.h"

// Functions that OpenBLAS has for its own use. Both are null here if its build does not export them.
extern "C" {
__attribute__((weak)) void* blas_memory_alloc(int);
__attribute__((weak)) void blas_memory_free(void*);
}

namespace graphsink {
namespace {

constexpr std::size_t kBufferMebibytes = 128;  // on x86-64 and arm64
constexpr std::size_t kOtherMebibytes = 16;    // for what the process takes meanwhile
constexpr int kMostThreads = 64;

bool is_limited(int resource) {
  rlimit limit;
  return getrlimit(static_cast<decltype(RLIMIT_AS)>(resource), &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Throws Error unless the process may have memory for so many buffers.
void expect_room(int buffers, int threads) {
  const std::size_t bytes = (static_cast<std::size_t>(buffers) * kBufferMebibytes + kOtherMebibytes) << 20;
  void* room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED && munmap(room, bytes) == 0) return;
  throw Error("cpu", Where(),
              "OpenBLAS needs addresses for " + std::to_string(kBufferMebibytes) + " MiB for each of " +
                  std::to_string(threads) + " threads, and a limit of the process leaves fewer",
              "raise the limit (ulimit -v, ulimit -d), compile with fewer threads (Tuning::threads), or start "
              "with OPENBLAS_NUM_THREADS=1",
              ErrorCode::out_of_memory);
}

// The threads of OpenBLAS, which this library does not use, start when the process does, and each takes a buffer at
// some time after that. Waits until all have theirs: they have when they have shared a product.
void wait_for_own_threads() {
  const int threads = openblas_get_num_threads();
  if (threads <= 1) return;
  expect_room(threads, threads);  // the calling thread takes one, too
  constexpr int kSize = 160;      // the threads take no part in products that are much smaller
  const int rows = kSize * threads;
  const std::vector<float> a(static_cast<std::size_t>(rows) * kSize), b(kSize * kSize);
  std::vector<float> c(a.size());
  multiply_by_threads(rows, kSize, kSize, 1.0f, {a.data(), kSize}, {b.data(), kSize}, 0.0f, c.data(), kSize);
  use_one_blas_thread();
}

// Buffers that are held at the same time are different ones.
class Buffers {
 public:
  Buffers() = default;
  ~Buffers() {
    for (void* buffer : buffers_) blas_memory_free(buffer);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  void take() {
    buffers_.reserve(buffers_.size() + 1);
    buffers_.push_back(blas_memory_alloc(0));
  }

 private:
  std::vector<void*> buffers_;
};

}  // namespace

void take_blas_memory(int threads) {
  if (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA)) return;
  if (blas_memory_alloc == nullptr || blas_memory_free == nullptr) return;
  wait_for_own_threads();
  Buffers buffers;
  for (int i = 0; i < std::min(threads, kMostThreads); ++i) {
    expect_room(1, threads);
    buffers.take();
  }
}

}  // namespace graphsink
