// Control panel of the software CUDA device: what a test may do that a program on a real device cannot.
// All functions may be called from any host thread unless said otherwise.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace emu {

// Chooses the order of everything CUDA leaves open: ready operations, blocks, threads, and how early work runs. Seed 0
// (or the environment's GS_EMU_SEED) runs work only when something waits for it. Call while no work is outstanding.
void set_seed(std::uint64_t seed);
std::uint64_t seed();

// Makes the nth call (1 is the next one) of the named function return `code` without doing anything; with forever also
// all later ones. Name "*" counts calls of every function. A sticky code (700, 719, ...) also makes the device fail.
// cuBLASLt functions return the code as a cublasStatus_t, driver functions as a CUresult. Error look-ups
// (cudaGetLastError, cudaPeekAtLastError, cudaGetErrorName, cudaGetErrorString) are not calls in this sense.
void fail(std::string_view function, int nth, cudaError_t code, bool forever = false);
void clear_faults();
// Calls that failed so, by name, since the start of the process or reset_calls().
std::map<std::string, std::size_t> injected();

// Calls since the start of the process or reset_calls(), refused ones included.
std::size_t calls(std::string_view function);
std::size_t total_calls();
void reset_calls();

// Operations the device has run since the start of the process or reset_calls().
struct Executed {
  std::size_t kernels = 0;  // those of libraries too
  std::size_t copies = 0;
  std::size_t fills = 0;
  std::size_t host_functions = 0;
  std::size_t conditionals = 0;  // evaluations of a conditional node
};
Executed executed();

// Objects created and not yet destroyed. graphs counts neither children nor conditional bodies.
struct LiveObjects {
  std::size_t streams = 0;
  std::size_t events = 0;
  std::size_t graphs = 0;
  std::size_t execs = 0;
  std::size_t device_allocations = 0;
  std::size_t pinned_allocations = 0;
  std::size_t reservations = 0;     // cuMemAddressReserve
  std::size_t physical_blocks = 0;  // cuMemCreate, live by handle or by mapping
  std::size_t blas_handles = 0;
  std::size_t libraries = 0;  // cudaLibraryLoadData
  std::size_t log_callbacks = 0;
  std::size_t user_objects = 0;
  std::size_t total() const {
    return streams + events + graphs + execs + device_allocations + pinned_allocations + reservations +
           physical_blocks + blas_handles + libraries + log_callbacks + user_objects;
  }
};
// Returns after the destructors of all user objects whose last reference is gone, so not for use in one of them.
LiveObjects live_objects();

// Whether this thread is in a function of the software device: what is allocated now is the device's, not the caller's.
bool is_in_call();

// Frees the memory that is live, as the end of the process would: for tests that make releases fail again and again.
// Call while no work is outstanding.
void release_memory();

// How many devices answer; GS_EMU_DEVICES or 1 at first.
void set_device_count(int count);

// Whether devices can reach each other's memory, if it is enabled; GS_EMU_PEERS=0: no. Off: what was enabled is not.
void set_peer_access(bool on);

// Whether a kernel fails that is given an address it could not use: of freed memory, of host memory that is neither
// pinned nor mapped, of another device's memory without peer access; also inside of structures. On by default. A GPU
// fails when the kernel uses the address; off for tests of kernels that do not.
void set_address_check(bool on);

// The host compiler that stands for NVRTC: a path, or a name that is looked up in PATH. Empty, as at first unless
// GS_EMU_COMPILER names one: NVRTC does not work. Compiling a kernel takes a third of a second.
void set_compiler(const std::string& name);

// What cudaStreamDestroy does with a stream that is capturing. NVIDIA's documents do not say. On (the default, and what
// an H100 does): it succeeds; a capture that began on the stream is over and its graph is
// gone; where the stream only joined a capture, the capture goes on without it. Off, also by
// GS_EMU_DESTROY_ENDS_CAPTURE=0: it returns cudaErrorStreamCaptureUnsupported, invalidates the capture, and the stream
// stays.
void set_destroy_ends_capture(bool on);

// Puts a kernel of a library on the stream, which `body` computes; a launch that a capture records holds copies of it.
// `name` is what profilers show, and must live for ever. The kernel fails that is given an address it could not use.
cudaError_t launch_library_kernel(const char* name, cudaStream_t stream, std::function<cudaError_t()> body,
                                  const std::vector<const void*>& addresses);
// For the body of such a kernel, which waits for something meanwhile: runs another operation that is ready, as a GPU
// would run it beside this one. Returns false if there is none.
bool run_beside();

// Operations submitted and not finished.
std::size_t outstanding();

// Forgets outstanding work, captures in progress, the sticky error, faults, and this thread's last error and capture
// mode. Objects stay. Graphs are counted from the beginning, so that the same calls list their nodes in the same order
// as before.
void reset();

// Text of the last launch failure, or of a call whose outcome CUDA leaves undefined and which no code reports (a graph
// destroyed while a stream captures into one of its bodies). Empty when there was none since reset().
std::string last_failure();

// Writes each call and its result to stderr; also on with GS_EMU_TRACE=1.
void set_trace(bool on);

// How host access to device memory is made to fault: "keys", "pages" or "off", see protection.h.
std::string_view memory_protection();

}  // namespace emu
