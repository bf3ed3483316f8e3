#include "exec/memory/inputs.h"

#include <algorithm>
#include <limits>

#include "base/trace.h"
#include "graphsink/memory.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

std::string text(const InputAttrs& attrs) {
  std::string out(to_string(attrs.dtype));
  out += "[";
  for (std::size_t i = 0; i < attrs.dims.size(); ++i) {
    out += i ? ", " : "";
    const Dim& dim = attrs.dims[i];
    out += dim.is_open ? "open" : std::to_string(dim.size);
    if (!dim.bucket.is_every_size()) out += " to " + to_string(dim.bucket);
  }
  return out + "]";
}

// Tells whether dims [skip, ...) of `given` match the dims of the input.
bool fits(const InputAttrs& attrs, const Shape& given, int skip) {
  if (given.rank() != static_cast<int>(attrs.dims.size()) + skip) return false;
  for (std::size_t i = 0; i < attrs.dims.size(); ++i) {
    std::int64_t dim = given[static_cast<int>(i) + skip];
    if (!attrs.dims[i].is_open && dim != attrs.dims[i].size) return false;
  }
  return true;
}

Shape without_first(const Shape& shape) { return Shape(shape.dims().subspan(1)); }

// Copies a tensor of these dims to the front of a larger one, both row by row.
void copy_rows(const std::byte* from, std::span<const std::int64_t> from_dims, std::byte* to,
               std::span<const std::int64_t> to_dims, std::size_t element_bytes) {
  auto bytes = [&](std::span<const std::int64_t> dims) {
    std::size_t product = element_bytes;
    for (std::int64_t dim : dims) product *= static_cast<std::size_t>(dim);
    return product;
  };
  if (bytes(from_dims) == 0) return;
  if (std::equal(from_dims.begin() + 1, from_dims.end(), to_dims.begin() + 1)) {
    std::copy_n(from, bytes(from_dims), to);
    return;
  }
  const std::size_t from_row = bytes(from_dims.subspan(1)), to_row = bytes(to_dims.subspan(1));
  for (std::int64_t i = 0; i < from_dims[0]; ++i, from += from_row, to += to_row)
    copy_rows(from, from_dims.subspan(1), to, to_dims.subspan(1), element_bytes);
}

}  // namespace

Inputs::Inputs(const GraphData& graph, DeviceMemory& memory, std::shared_ptr<DeviceQueue> queue,
               std::shared_ptr<Stream> stream)
    : queue_(std::move(queue)), stream_(std::move(stream)) {
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.op != &input_op && node.op != &feed_op) continue;
    Entry& entry = entries_[static_cast<int>(id)];
    entry.attrs = &node.attrs.as<InputAttrs>();
    entry.is_feed = node.op == &feed_op;
    if (entry.is_feed) {
      entry.feed = memory.make_feed_memory();
    } else {
      entry.input = memory.reserve();
    }
    entry.shape = node.outputs[0].shape.examples();
    for (const Dim& dim : entry.attrs->dims) entry.has_open = entry.has_open || dim.is_open;
    // The input stands before what tells its size.
    if (entry.attrs->size_of >= 0) entries_.at(entry.attrs->size_of).sizes.push_back(static_cast<int>(id));
  }
}

Inputs::Entry& Inputs::find(const Value& input, const char* call, const Where& where) {
  auto found = entries_.find(input.node());
  if (!input.valid() || found == entries_.end()) {
    throw Error(call, where, "not an input or feed of this program's graph",
                "pass the Value that Graph::input() or Graph::feed() returned before compile()");
  }
  const InputAttrs& attrs = *found->second.attrs;
  if (attrs.size_of >= 0) {
    throw Error(std::string(call) + "(\"" + attrs.name + "\")", where, "it is a true_size()",
                "write \"" + entry(attrs.size_of).attrs->name + "\", which sets it");
  }
  return found->second;
}

std::optional<std::int64_t> Inputs::slices_of(const Entry& entry, const Shape& given, bool shape_is_known,
                                              Shape& slice) {
  const InputAttrs& attrs = *entry.attrs;
  if (shape_is_known && fits(attrs, given, 0)) {
    slice = given;
    return 1;
  }
  if (shape_is_known && entry.is_feed && fits(attrs, given, 1)) {
    slice = without_first(given);
    return given[0];
  }
  if (shape_is_known && given.rank() != 1) return std::nullopt;
  // A flat array holds as many slices as fit. If there is one open dimension, its size follows from the number of
  // elements.
  std::int64_t count = given.size(), known = 1;
  int open_dim = -1, open_dims = 0;
  for (std::size_t i = 0; i < attrs.dims.size(); ++i) {
    if (attrs.dims[i].is_open)
      open_dim = static_cast<int>(i), ++open_dims;
    else
      known *= attrs.dims[i].size;
  }
  if (known == 0) return open_dims == 0 && count == 0 ? std::optional<std::int64_t>(1) : std::nullopt;
  if (open_dims > 1 || count % known != 0) return std::nullopt;
  if (open_dims == 1) {
    slice[open_dim] = count / known;
    return 1;
  }
  if (!entry.is_feed && count != known) return std::nullopt;
  return count / known;
}

bool Inputs::write(const Value& input, const TensorType& given, const void* data, bool shape_is_known,
                   const Where& where) {
  Entry& entry = find(input, "write", where);
  const InputAttrs& attrs = *entry.attrs;
  auto refuse = [&](const std::string& seen, const std::string& remedy) {
    throw Error("write(\"" + attrs.name + "\")", where, "takes " + text(attrs) + ", was given " + seen, remedy);
  };
  if (given.dtype != attrs.dtype)
    refuse(to_string(given), "convert the data to " + std::string(to_string(attrs.dtype)) + ", as Tensor::to() does");
  Shape slice = entry.shape;
  const std::optional<std::int64_t> fitting = slices_of(entry, given.shape, shape_is_known, slice);
  if (!fitting) {
    const auto open_dims =
        std::count_if(attrs.dims.begin(), attrs.dims.end(), [](const Dim& dim) { return dim.is_open; });
    refuse(shape_is_known ? to_string(given) : std::to_string(given.shape.size()) + " elements",
           open_dims > 1   ? "write a Tensor, whose shape says what each open dimension is"
           : entry.is_feed ? "write whole slices, one or one for each step"
                           : "write exactly one tensor of that shape");
  }
  const std::int64_t slices = *fitting;
  if (slices == 0) refuse(to_string(given), "write at least one slice");
  const Shape written = slice;
  for (int node : entry.sizes) {
    const std::int64_t size = slice[entries_.at(node).attrs->axis];
    if (size > std::numeric_limits<std::int32_t>::max())
      refuse(to_string(given), "write less at once: true_size() is an i32, which cannot be " + std::to_string(size));
  }
  for (int d = 0; d < slice.rank(); ++d) {
    const Bucket& bucket = attrs.dims[static_cast<std::size_t>(d)].bucket;
    slice[d] = bucket.round_up(slice[d]);
    if (slice[d] < 0) {
      refuse(to_string(given) + ", of which axis " + std::to_string(d) + " is larger than the largest of its bucket",
             "write less at once, or add a larger size to the bucket");
    }
  }
  std::size_t bytes = given.bytes();
  ++entry.version;
  GRAPHSINK_TRACE(copy, "write");
  entry.slices = 0;  // if the copy fails half-way, the input counts as not written
  if (entry.is_feed) {
    entry.first_slice = entry.feed->write(*stream_, data, bytes);
    entry.stride = static_cast<std::int64_t>(TensorType{attrs.dtype, slice}.bytes());
  } else {
    if (!(slice == written)) {
      data = padded(entry, static_cast<const std::byte*>(data), written, slice);
      bytes = entry.padded.size();
    }
    queue_->upload(*stream_, address(input.node(), bytes), data, bytes);
    write_sizes(entry, written);
  }
  bool reshaped = !(slice == entry.shape);
  entry.shape = slice;
  entry.slices = slices;
  return reshaped;
}

Staged Inputs::stage(const Value& feed, std::int64_t slices, const Shape* slice, const Where& where) {
  Entry& entry = find(feed, "stage", where);
  const InputAttrs& attrs = *entry.attrs;
  auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw Error("stage(\"" + attrs.name + "\")", where, problem, remedy);
  };
  if (!entry.is_feed) refuse("it is an input, which has no slices", "write() it, or make it a feed()");
  if (slices < 1) refuse(std::to_string(slices) + " slices", "stage one slice for each step of the coming run");
  const Shape& shape = slice ? *slice : entry.shape;
  if (shape.has_open() || !fits(attrs, shape, 0)) {
    refuse("takes slices of " + text(attrs) + ", was asked for " + to_string(TensorType{attrs.dtype, shape}),
           "pass the shape of one slice, with the size of each open dimension");
  }
  const std::size_t bytes = TensorType{attrs.dtype, shape}.bytes(),
                    stride = slices > 1 && bytes > 0 ? rounded_block(bytes) : bytes;
  if (bytes > 0 && static_cast<std::uint64_t>(slices) > std::numeric_limits<std::int64_t>::max() / stride)
    refuse(std::to_string(slices) + " slices of " + bytes_text(bytes), "stage fewer slices at once");
  return {entry.feed->stage(stride * static_cast<std::size_t>(slices)), feed, shape, slices,
          static_cast<std::int64_t>(stride)};
}

bool Inputs::send(const Staged& staged, const Where& where) {
  Entry& entry = find(staged.feed, "write", where);
  GRAPHSINK_TRACE(copy, "write");
  ++entry.version;
  entry.slices = 0;  // if the copy fails, the feed counts as not written
  const std::size_t bytes = static_cast<std::size_t>(staged.slices * staged.stride);
  entry.first_slice = entry.feed->send(*stream_, staged.memory, bytes);
  const bool reshaped = !(staged.slice == entry.shape);
  entry.shape = staged.slice;
  entry.stride = staged.stride;
  entry.slices = staged.slices;
  return reshaped;
}

const void* Inputs::padded(Entry& entry, const std::byte* data, const Shape& from, const Shape& to) {
  const TensorType type{entry.attrs->dtype, to};
  entry.padded.assign(type.bytes(), std::byte{0});
  copy_rows(data, from.dims(), entry.padded.data(), to.dims(), size_of(type.dtype));
  return entry.padded.data();
}

void Inputs::write_sizes(const Entry& entry, const Shape& written) {
  for (int node : entry.sizes) {
    Entry& size = entries_.at(node);
    const auto value = static_cast<std::int32_t>(written[size.attrs->axis]);
    ++size.version;
    size.slices = 0;
    queue_->upload(*stream_, address(node, sizeof value), &value, sizeof value);
    size.slices = 1;
  }
}

void Inputs::use_memory(int node, void* memory) {
  Entry& entry = entries_.at(node);
  entry.callers = memory;
  entry.slices = 1;
  ++entry.version;
}

void* Inputs::address(int node, std::size_t bytes) {
  Entry& entry = entries_.at(node);
  if (entry.is_feed) return nullptr;
  if (entry.callers) return entry.callers;
  entry.input->grow(std::max<std::size_t>(bytes, 1));
  return entry.input->base();
}

void Inputs::check(const Plan& plan, std::int64_t steps, const Where& where) const {
  auto expect_written = [&](int node) {
    const Entry& e = entry(node);
    if (e.slices == 0) {
      throw Error("run", where, "nothing was written to \"" + e.attrs->name + "\", which is " + text(*e.attrs),
                  e.is_feed ? "call write() for it before run()" : "call write() or bind_memory() for it before run()");
    }
    if (e.is_feed && e.slices > 1 && e.slices < steps) {
      throw Error("run", where,
                  "\"" + e.attrs->name + "\" has " + std::to_string(e.slices) + " slices for " + std::to_string(steps) +
                      " steps",
                  "write a slice for each step, or a single one for all of them");
    }
  };
  for (const PlanFeed& feed : plan.feeds) expect_written(feed.source);
  for (const int input : plan.inputs) expect_written(input);
}

void Inputs::upload_feed_table(const Plan& plan, FeedTable* table) {
  for (std::size_t i = 0; i < plan.feeds.size(); ++i) {
    const Entry& e = entry(plan.feeds[i].source);
    const std::int64_t stride = e.slices > 1 ? e.stride : 0;
    has_new_feeds_ |= feeds_.rings[i] != e.first_slice || feeds_.strides[i] != stride;
    feeds_.rings[i] = e.first_slice;
    feeds_.strides[i] = stride;
  }
  if (!has_new_feeds_) return;
  queue_->upload(*stream_, table, &feeds_, sizeof feeds_);
  has_new_feeds_ = false;
}

bool Inputs::have_result_sizes() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& item) { return item.second.attrs->is_result_size; });
}

bool Inputs::set_result_size(int node, std::int64_t elements) {
  Entry& entry = entries_.at(node);
  const Bucket& bucket = entry.attrs->dims[0].bucket;
  const std::int64_t rows = bucket.round_up(elements);
  if (rows < 0) return false;
  entry.shape = Shape{rows};
  return true;
}

std::size_t Inputs::input_bytes(const Plan& plan) const {
  std::size_t sum = 0;
  for (const PlanSource& source : plan.sources) {
    auto found = entries_.find(source.node);
    if (found == entries_.end() || found->second.is_feed || found->second.callers) continue;
    sum += found->second.input->size_for(std::max<std::size_t>(source.type.bytes(), 1));
  }
  return sum;
}

std::vector<std::size_t> Inputs::feed_bytes(const Plan& plan) const {
  std::vector<std::size_t> bytes;
  for (const PlanFeed& feed : plan.feeds) {
    const Entry& e = entry(feed.source);
    std::size_t held = e.feed->bytes();
    bytes.push_back(held > 0 ? held : rounded_block(TensorType{e.attrs->dtype, e.shape}.bytes()));
  }
  return bytes;
}

std::size_t Inputs::staged_bytes() const {
  std::size_t sum = 0;
  for (const auto& [node, entry] : entries_)
    if (entry.feed) sum += entry.feed->staged_bytes();
  return sum;
}

bool Inputs::have_open_dimensions() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& item) { return item.second.has_open; });
}

InputShapes Inputs::shapes() const {
  InputShapes shapes;
  for (const auto& [node, entry] : entries_)
    if (entry.has_open) shapes.emplace_back(node, entry.shape);
  return shapes;
}

}  // namespace graphsink
