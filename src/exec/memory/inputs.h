// The inputs and feeds of a program: their memory, the shapes and slices written last.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.h"
#include "ir/graph_data.h"

namespace graphsink {

constexpr int kMaxFeeds = 48;

// Where begin_step finds the slices of the feeds.
struct FeedTable {
  const void* rings[kMaxFeeds] = {};     // address of the first slice
  std::int64_t strides[kMaxFeeds] = {};  // bytes from slice to slice; 0: one slice for all steps
};

// Slices of a feed in memory of stage().
struct Staged {
  StagedMemory memory;
  Value feed;
  Shape slice;
  std::int64_t slices = 0;
  std::int64_t stride = 0;  // bytes from slice to slice
};

class Inputs {
 public:
  Inputs(const GraphData& graph, DeviceMemory& memory, std::shared_ptr<DeviceQueue> queue,
         std::shared_ptr<Stream> stream);

  // Copies `data` to the device. Throws Error, having changed nothing, if it does not fit the input; if the device
  // fails, the input counts as not written. Returns true if the shape of an open dimension changed.
  bool write(const Value& input, const TensorType& given, const void* data, bool shape_is_known, const Where& where);

  // Memory for `slices` slices of a feed, from which it reads them once they are sent. `slice` is the shape of each
  // where the feed has open dimensions; null: the shape written last. Throws Error for what is no feed, and a shape
  // that does not fit.
  Staged stage(const Value& feed, std::int64_t slices, const Shape* slice, const Where& where);
  // Like write(), for staged slices.
  bool send(const Staged& staged, const Where& where);

  // Lets the input live in memory of the caller's, who writes it from now on. Precondition: it is an input of a fixed
  // shape.
  void use_memory(int node, void* memory);
  bool is_callers(int node) const { return entry(node).callers != nullptr; }

  // Throws Error unless everything the plan uses is there, with slices for `steps` steps.
  void check(const Plan& plan, std::int64_t steps, const Where& where) const;
  // Gives the device the addresses of the slices that were written last, if they are others than before. `table` is an
  // address of the device, and zero before the first call.
  void upload_feed_table(const Plan& plan, FeedTable* table);

  // Changes with each write() of the input; 0 before the first.
  std::uint64_t version(int node) const { return entry(node).version; }

  // Whether there are inputs that stand for the sizes of results (InputAttrs::is_result_size).
  bool have_result_sizes() const;
  // Sets the size of such an input to that of a result with so many elements. Returns false, having changed nothing, if
  // they are more than the largest size of its bucket.
  bool set_result_size(int node, std::int64_t elements);

  // Memory of all inputs that the plan uses, and of the slices of each of its feeds; allocated or not.
  std::size_t input_bytes(const Plan& plan) const;
  std::vector<std::size_t> feed_bytes(const Plan& plan) const;

  std::size_t staged_bytes() const;  // host memory of stage() from which a device copies

  bool have_open_dimensions() const;
  // The shapes that differ from the examples in the graph, or may.
  InputShapes shapes() const;
  // The device memory of an input, as large as it was ever needed; it never moves. Null for feeds.
  void* address(int node, std::size_t bytes);

 private:
  struct Entry {
    const InputAttrs* attrs = nullptr;
    bool is_feed = false;
    bool has_open = false;
    Shape shape;              // shape of one slice
    std::int64_t slices = 0;  // 0: nothing was written yet
    std::int64_t stride = 0;  // bytes from slice to slice, of a feed
    std::uint64_t version = 0;
    std::unique_ptr<Arena> input;      // memory of an input; null for a feed
    void* callers = nullptr;           // memory of the caller's in which an input lives; null: it lives in `input`
    std::unique_ptr<FeedMemory> feed;  // memory of a feed; null for an input
    const void* first_slice = nullptr;
    std::vector<int> sizes;         // the inputs that tell true sizes of this one
    std::vector<std::byte> padded;  // data that was padded last
  };
  // How many slices the data is, and the shape of each: of a shape, or, if that is not known, of so many elements.
  // Nothing if it does not fit.
  static std::optional<std::int64_t> slices_of(const Entry& entry, const Shape& given, bool shape_is_known,
                                               Shape& slice);
  // The data, padded with zeros to a larger shape. Valid until the next call for this input.
  static const void* padded(Entry& entry, const std::byte* data, const Shape& from, const Shape& to);
  // Writes the inputs that tell the true sizes of this one.
  void write_sizes(const Entry& entry, const Shape& written);
  Entry& find(const Value& input, const char* call, const Where& where);
  const Entry& entry(int node) const { return entries_.at(node); }

  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<Stream> stream_;
  std::map<int, Entry> entries_;  // by node
  FeedTable feeds_;               // the table that the device has, or is to be given
  bool has_new_feeds_ = false;    // the device may have another table: feeds_ was not uploaded
};

}  // namespace graphsink
