// What no section of the fact sheet says and foreign tests do: sizes, copy directions, descriptors, events.
#include <cuda.h>

#include <limits>

#include "conformance/scene.h"

namespace conformance {
namespace {

constexpr const char* kForeignRow = "foreign tests alone";

Case one_call(const char* name, const char* call, cudaError_t code, const std::function<cudaError_t(Recorder&)>& make) {
  return by_foreign_test({name, kForeignRow, {returns(call, code)}, [=](Recorder& r) { r.call(call, make(r)); }});
}

std::vector<Case> pinned_cases() {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  return {one_call("pinned.all_of_cudaMallocHost", "cudaMallocHost", cudaErrorMemoryAllocation,
                   [](Recorder&) {
                     void* memory = nullptr;
                     return cudaMallocHost(&memory, kAll);
                   }),
          one_call("pinned.all_of_cudaHostAlloc", "cudaHostAlloc", cudaErrorMemoryAllocation, [](Recorder&) {
            void* memory = nullptr;
            return cudaHostAlloc(&memory, kAll, cudaHostAllocDefault);
          })};
}

// A copy to device memory whose direction is not that of its addresses: at once, recorded, and as a node.
enum class Way { kLive, kCaptured, kNode };

Case copy(const char* name, Way way, bool is_pinned, cudaMemcpyKind kind) {
  const char* call = way == Way::kNode ? "cudaGraphAddNode" : "cudaMemcpyAsync";
  return {std::string("copy.") + name,
          "foreign tests, of copies that run at once",
          {returns(call, cudaSuccess), gives("copied", 7)},
          [=](Recorder& r) {
            int* target = make_int(r);
            const int* source = is_pinned ? make_pinned(r, 7) : make_int(r, 7);
            const cudaStream_t stream = make_stream(r);
            cudaGraph_t graph = way == Way::kNode ? make_graph(r) : nullptr;
            if (way == Way::kCaptured) begin(r, stream);
            r.watch(nullptr);
            cudaGraphNode_t node = nullptr;
            cudaGraphNodeParams params = copy_params(target, source, sizeof(int), kind);
            r.call(call, way == Way::kNode ? add_node(&node, graph, params)
                                           : cudaMemcpyAsync(target, source, sizeof(int), kind, stream));
            if (way == Way::kCaptured) graph = end(r, stream);
            if (graph != nullptr) launch(r, instantiate(r, graph), stream);
            r.need("cudaStreamSynchronize", cudaStreamSynchronize(stream));
            r.value("copied", read_int(r, target));
          }};
}

std::vector<Case> copy_cases() {
  return {by_foreign_test(copy("device_to_device_called_d2h", Way::kLive, false, cudaMemcpyDeviceToHost)),
          by_foreign_test(copy("device_to_device_called_h2d", Way::kLive, false, cudaMemcpyHostToDevice)),
          by_foreign_test(copy("pinned_called_device", Way::kLive, true, cudaMemcpyDeviceToDevice)),
          copy("captured_device_to_device_called_d2h", Way::kCaptured, false, cudaMemcpyDeviceToHost),
          copy("captured_device_to_device_called_h2d", Way::kCaptured, false, cudaMemcpyHostToDevice),
          copy("captured_pinned_called_device", Way::kCaptured, true, cudaMemcpyDeviceToDevice),
          copy("node_device_to_device_called_d2h", Way::kNode, false, cudaMemcpyDeviceToHost),
          copy("node_device_to_device_called_h2d", Way::kNode, false, cudaMemcpyHostToDevice),
          copy("node_pinned_called_device", Way::kNode, true, cudaMemcpyDeviceToDevice)};
}

// A node that is refused, or not.
Case node(const char* name, cudaError_t code, const std::function<cudaGraphNodeParams(Recorder&)>& make) {
  return one_call(name, "cudaGraphAddNode", code, [make](Recorder& r) {
    cudaGraphNode_t added = nullptr;
    cudaGraphNodeParams params = make(r);
    return add_node(&added, make_graph(r), params);
  });
}

std::vector<Case> node_cases_of_arguments() {
  return {node("memset.of_no_rows", kInvalid, [](Recorder& r) { return fill_params(make_int(r), 1, 1, 0); }),
          node("alloc_node.of_a_missing_device", kInvalid,
               [](Recorder& r) {
                 cudaGraphNodeParams params = alloc_params(256);
                 r.need("cudaGetDeviceCount", cudaGetDeviceCount(&params.alloc.poolProps.location.id));
                 return params;
               }),
          node("alloc_node.of_no_type", kInvalid,
               [](Recorder&) {
                 cudaGraphNodeParams params = alloc_params(256);
                 params.alloc.poolProps.allocType = cudaMemAllocationTypeInvalid;
                 return params;
               }),
          node("alloc_node.of_all_bytes", cudaErrorMemoryAllocation,
               [](Recorder&) { return alloc_params(std::numeric_limits<std::size_t>::max()); }),
          node("alloc_node.with_more_descriptors_than_devices", kInvalid, [](Recorder& r) {
            static cudaMemAccessDesc access = {};
            access.location.type = cudaMemLocationTypeDevice;
            access.flags = cudaMemAccessFlagsProtReadWrite;
            int devices = 0;
            r.need("cudaGetDeviceCount", cudaGetDeviceCount(&devices));
            cudaGraphNodeParams params = alloc_params(256);
            params.alloc.accessDescs = &access;
            params.alloc.accessDescCount = static_cast<std::size_t>(devices) + 1;
            return params;
          })};
}

// The attribute of a kernel node with one field changed.
Case window(const char* name, cudaError_t code, void (*change)(cudaAccessPolicyWindow&)) {
  return one_call(name, "cudaGraphKernelNodeSetAttribute", code, [change](Recorder& r) {
    int* memory = make_int(r);
    const cudaGraphNode_t kernel = add_set(r, make_graph(r), memory, 1);
    int most = 0;
    r.need("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&most, cudaDevAttrMaxAccessPolicyWindowSize, 0));
    cudaKernelNodeAttrValue value = {};
    value.accessPolicyWindow = {memory, static_cast<std::size_t>(most), 0.6f, cudaAccessPropertyPersisting,
                                cudaAccessPropertyStreaming};
    change(value.accessPolicyWindow);
    return cudaGraphKernelNodeSetAttribute(kernel, cudaLaunchAttributeAccessPolicyWindow, &value);
  });
}

std::vector<Case> window_cases() {
  return {window("window.largest", cudaSuccess, [](cudaAccessPolicyWindow&) {}),
          window("window.too_large", kInvalid, [](cudaAccessPolicyWindow& w) { ++w.num_bytes; }),
          window("window.ratio_below_0", kInvalid, [](cudaAccessPolicyWindow& w) { w.hitRatio = -0.6f; }),
          window("window.ratio_above_1", kInvalid, [](cudaAccessPolicyWindow& w) { w.hitRatio = 1.1f; }),
          window("window.misses_persist", kInvalid,
                 [](cudaAccessPolicyWindow& w) { w.missProp = cudaAccessPropertyPersisting; })};
}

// A driver function by its name; its codes are those of the runtime here.
template <class F>
F* driver_function(Recorder& r, const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  r.need("cudaGetDriverEntryPointByVersion",
         cudaGetDriverEntryPointByVersion(name, &function, 13000, cudaEnableDefault, &found));
  return reinterpret_cast<F*>(function);
}

// Memory of one unit that is mapped, and two descriptors of which `change` may spoil the second.
Case access(const char* name, cudaError_t code, void (*change)(CUmemAccessDesc&)) {
  return one_call(name, "cuMemSetAccess", code, [change](Recorder& r) {
    make_int(r);  // the driver functions need a context
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    std::size_t unit = 0;
    CUdeviceptr base = 0;
    CUmemGenericAllocationHandle block = 0;
    const auto need = [&](const char* call, CUresult result) { r.need(call, static_cast<cudaError_t>(result)); };
    need("cuMemGetAllocationGranularity",
         driver_function<decltype(cuMemGetAllocationGranularity)>(r, "cuMemGetAllocationGranularity")(
             &unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    need("cuMemAddressReserve",
         driver_function<decltype(cuMemAddressReserve)>(r, "cuMemAddressReserve")(&base, unit, 0, 0, 0));
    need("cuMemCreate", driver_function<decltype(cuMemCreate)>(r, "cuMemCreate")(&block, unit, &properties, 0));
    need("cuMemMap", driver_function<decltype(cuMemMap)>(r, "cuMemMap")(base, unit, 0, block, 0));
    CUmemAccessDesc descriptors[2] = {{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                      {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    change(descriptors[1]);
    const CUresult result = driver_function<decltype(cuMemSetAccess)>(r, "cuMemSetAccess")(base, unit, descriptors, 2);
    return static_cast<cudaError_t>(result);
  });
}

std::vector<Case> mapping_cases() {
  return {
      access("mapping.one_bad_location", kInvalid, [](CUmemAccessDesc& d) { d.location.id = -1; }),
      access("mapping.one_bad_flag", kInvalid, [](CUmemAccessDesc& d) { d.flags = static_cast<CUmemAccess_flags>(2); }),
      one_call("mapping.granularity_of_a_bad_flag", "cuMemGetAllocationGranularity", kInvalid, [](Recorder& r) {
        make_int(r);
        CUmemAllocationProp properties = {};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        std::size_t unit = 0;
        const auto get = driver_function<decltype(cuMemGetAllocationGranularity)>(r, "cuMemGetAllocationGranularity");
        int no_flag = 0xff;
        return static_cast<cudaError_t>(
            get(&unit, &properties, static_cast<CUmemAllocationGranularity_flags>(no_flag)));
      })};
}

// The properties of a pool with one field changed.
Case pool(const char* name, cudaError_t code, void (*change)(cudaMemPoolProps&)) {
  return one_call(name, "cudaMemPoolCreate", code, [change](Recorder&) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    change(properties);
    cudaMemPool_t made = nullptr;
    return cudaMemPoolCreate(&made, &properties);
  });
}

std::vector<Case> pool_cases() {
  return {pool("pool.of_no_type", kInvalid, [](cudaMemPoolProps& p) { p.allocType = cudaMemAllocationTypeInvalid; }),
          pool("pool.of_no_place", kInvalid, [](cudaMemPoolProps& p) { p.location.type = cudaMemLocationTypeInvalid; }),
          pool("pool.of_a_missing_device", kInvalid, [](cudaMemPoolProps& p) { p.location.id = 4096; })};
}

std::vector<Case> event_argument_cases() {
  std::vector<Case> cases{
      one_call("event.interprocess", "cudaEventCreateWithFlags", cudaSuccess,
               [](Recorder&) {
                 cudaEvent_t event = nullptr;
                 return cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming);
               }),
      one_call("launch.cooperative_null", "cudaLaunchCooperativeKernel", cudaErrorInvalidDeviceFunction,
               [](Recorder& r) {
                 return cudaLaunchCooperativeKernel(static_cast<const void*>(nullptr), dim3(1), dim3(1), nullptr, 0,
                                                    make_stream(r));
               }),
      one_call("event.times_of_two_devices", "cudaEventElapsedTime", cudaErrorInvalidResourceHandle, [](Recorder& r) {
        cudaEvent_t events[2] = {};
        for (int i = 0; i < 2; ++i) {
          r.need("cudaSetDevice", cudaSetDevice(i));
          events[i] = make_event(r, cudaEventDefault);
          r.need("cudaEventRecord", cudaEventRecord(events[i], make_stream(r)));
          r.need("cudaEventSynchronize", cudaEventSynchronize(events[i]));
        }
        float milliseconds = 0;
        return cudaEventElapsedTime(&milliseconds, events[0], events[1]);
      })};
  cases.back().devices = 2;
  return cases;
}

}  // namespace

std::vector<Case> argument_cases() {
  std::vector<Case> cases;
  for (const auto& part : {pinned_cases(), copy_cases(), node_cases_of_arguments(), window_cases(), mapping_cases(),
                           pool_cases(), event_argument_cases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

}  // namespace conformance
