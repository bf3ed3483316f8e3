// DeviceId, Target: which device a program runs on, and what that can do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Kind of a device: the host itself, or a GPU.
enum class DeviceKind : std::uint8_t { cpu, cuda };

// Names a device; cpu() is the host itself.
struct DeviceId {
  DeviceKind kind = DeviceKind::cpu;  // by default the host
  int index = 0;                      // number of a GPU, as CUDA counts those that this process may use
  friend bool operator==(const DeviceId&, const DeviceId&) = default;  // whether they name one device
};
inline DeviceId cpu() { return {DeviceKind::cpu, 0}; }  // the host
// A GPU by its number, see DeviceId::index. compile() throws Error if it is not there.
inline DeviceId cuda(int index = 0) { return {DeviceKind::cuda, index}; }
std::string to_string(DeviceId id);  // "cpu", "cuda:0"
// The number of usable CUDA devices: 0 without a driver, without a device, or in a build without CUDA.
int cuda_device_count() noexcept;

// A plan uses at most this many streams, on all its devices together.
inline constexpr int kMaxStreams = 8;

// Capabilities of a device, which determine what one launch on it may hold.
struct Target {
  DeviceId id;                   // the device itself
  std::string name = "cpu";      // as CUDA names the GPU: NVIDIA H200, say
  int sm = 0;                    // compute capability times ten, 0 on the CPU
  bool separate_memory = false;  // the host cannot access its memory, so that CPU bodies need copies
  // Memory of the caller's must begin at a multiple of so many bytes (Program::bind_memory()), which is a line of a
  // cache on the CPU, and 256 on CUDA devices. All memory that a program allocates begins at a multiple of 256.
  std::size_t alignment = 64;
  // Ops of a program for it can run on further devices, too (CompileOptions::further_devices).
  bool takes_further_devices = false;
  // Profilers show the nodes of its captured graphs (Program::write_node_names()).
  bool has_profiled_nodes = false;
  bool conditional_nodes = true;     // loops and branches can be part of a launch
  bool host_nodes_in_bodies = true;  // the bodies of loops and branches in a launch may hold CPU bodies of ops
  // Groups of element-wise ops become kernels that are compiled while the program runs (Tuning::fuse). On the CPU no
  // compiler is needed.
  bool compiles_kernels = false;
  std::string fusion_obstacle;  // reason why a GPU compiles no kernels; empty where it does
  // Kernels can be launched programmatically (Tuning::programmatic_launch): the device has compute capability
  // 9.0 or above, and so does the code of the library's kernels that it runs.
  bool launches_programmatically = false;
  int max_streams = kMaxStreams;  // bound of the streams of a plan, with those of further devices
  std::vector<int> peers;         // CUDA devices to and from which it copies directly; other copies go through the host

  // Its ops run their CPU bodies, in threads of this process. A launch can hold each of them, whatever its traits say,
  // and holds no kernel.
  bool runs_cpu_bodies() const { return id.kind == DeviceKind::cpu; }

  // The host, to plan for it with the values above; compile() sets max_streams by the cores of the machine.
  static Target host() { return {}; }
  // A GPU with CUDA 13 (CUDA Programming Guide, "Conditional Graph Nodes"), to plan for one without having it. Whether
  // NVRTC is there is not known: set compiles_kernels for a plan with groups of element-wise ops.
  static Target cuda13(int sm = 90);
};

// A program has at most this many devices beside its target (CompileOptions::further_devices).
inline constexpr std::size_t kMaxFurtherTargets = 4;

}  // namespace graphsink
