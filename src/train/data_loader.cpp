#include "graphsink/data_loader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/number_text.h"
#include "train/launches.h"
#include "train/loader_access.h"

namespace graphsink {
namespace data_loading {

// The slices of a launch, by feed, then those of the mask.
struct StagedFeeds : LaunchMemory {
  explicit StagedFeeds(Program& p) : program(p) {}
  void give(std::int64_t steps, const Where& where) override {
    for (StagedSlices& each : slices) program.write(each.take(steps, where), where);
  }

  Program& program;
  std::vector<StagedSlices> slices;
};

}  // namespace data_loading

using namespace data_loading;

class Loader::Impl final : private Receiver {
 public:
  Impl(Program& program, std::shared_ptr<const Source> source, SampleOrder order,
       std::vector<std::pair<std::string, Value>> feeds, const LoaderOptions& options, const Where& where)
      : program_(program),
        mask_(options.mask),
        launches_(kLoader, *this, source, order, make_parts(source.get(), order, std::move(feeds), options, where),
                  options, where) {}

  Launches& launches() { return launches_; }
  bool feeds(const Program& program) const { return &program == &program_; }

 private:
  static constexpr const char* kLoader = "Loader";
  static void require(bool holds, const std::string& problem, const std::string& remedy, const Where& where) {
    demand(holds, kLoader, problem, remedy, where);
  }

  std::vector<Part> make_parts(const Source* source, const SampleOrder& order,
                               std::vector<std::pair<std::string, Value>> feeds, const LoaderOptions& options,
                               const Where& where) {
    check_options(kLoader, source, options, where);
    require(!feeds.empty(), "no feeds", "name a field of the source for each feed of the graph", where);
    batch_size_ = static_cast<std::int64_t>(order.batch(0, 0, where).samples.size());
    last_batch_ = static_cast<std::int64_t>(order.batch(0, order.batches() - 1, where).samples.size());
    std::vector<Part> parts;
    for (auto& [name, feed] : feeds) {
      Part part = part_of(name, feed, where);
      require_new(feed, name, where);
      if (!options.prepare) find_field(*source, name, parts, part, where);
      // Throws Error unless it is a feed of the program.
      (void)program_.stage(feed, 1, slice_of(part.type.shape, batch_size_, where), where);
      feeds_.push_back(std::move(feed));
      parts.push_back(part);
    }
    require(options.prepare || parts.size() == source->fields().size(),
            std::to_string(parts.size()) + " feeds for " + std::to_string(source->fields().size()) +
                " fields of the source",
            "name a feed for each field, or prepare the samples by a function", where);
    if (mask_) check_mask(where);
    require(options.when_starved != WhenStarved::shrink || !program_.plan(where).has_collectives,
            "WhenStarved::shrink would give each rank launches of other numbers of steps, and ranks launch alike",
            "leave LoaderOptions::when_starved at wait", where);
    return parts;
  }

  Part part_of(const std::string& name, const Value& feed, const Where& where) const {
    const TensorType type = feed.type(where);
    Part part{{type.dtype, {}}, 0};
    const std::string what = "the feed for \"" + name + "\" is " + to_string(type);
    require(type.shape.rank() >= 1 && (type.shape.is_open(0) || type.shape[0] == batch_size_),
            what + ", and a batch has " + std::to_string(batch_size_) + " samples",
            "make the feed [batch, ...], or set OrderOptions::batch", where);
    require(type.shape.is_open(0) || last_batch_ == batch_size_,
            what + ", and the last batch has " + std::to_string(last_batch_) + " samples",
            "let the first axis of the feed be open, or choose another OrderOptions::last_batch", where);
    std::vector<std::int64_t> rest;
    for (int d = 1; d < type.shape.rank(); ++d) {
      require(!type.shape.is_open(d), what + ", whose axis " + std::to_string(d) + " is open",
              "only the first axis, which counts samples, may be open", where);
      rest.push_back(type.shape[d]);
    }
    part.type.shape = Shape(std::span<const std::int64_t>(rest));
    return part;
  }

  // Sets the field that the feed takes.
  static void find_field(const Source& source, const std::string& name, const std::vector<Part>& others, Part& part,
                         const Where& where) {
    const std::vector<Field>& fields = source.fields();
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
    require(field != fields.end(), "the source has no field \"" + name + "\"", "it has " + names_of(fields), where);
    require(field->type == part.type,
            "the field \"" + name + "\" is " + to_string(field->type) + ", and a sample of its feed is " +
                to_string(part.type),
            "give both one type, where the first axis of the feed is that of the batch, or prepare the samples by a "
            "function",
            where);
    part.field = static_cast<std::size_t>(field - fields.begin());
    require(std::none_of(others.begin(), others.end(), [&](const Part& p) { return p.field == part.field; }),
            "the field \"" + name + "\" has two feeds", "name a feed for each field", where);
  }

  void require_new(const Value& feed, const std::string& name, const Where& where) const {
    const bool is_used = std::any_of(feeds_.begin(), feeds_.end(), [&](const Value& other) {
      return other.node() == feed.node() && other.output() == feed.output();
    });
    require(!is_used, "the feed for \"" + name + "\" is that of another field", "name another feed for each field",
            where);
  }

  void check_mask(const Where& where) const {
    const TensorType type = mask_->type(where);
    require((type.dtype == DType::f32 || type.dtype == DType::boolean) && type.shape.rank() == 1 &&
                (type.shape.is_open(0) || type.shape[0] == batch_size_),
            "the mask is " + to_string(type) + ", and a batch has " + std::to_string(batch_size_) + " samples",
            "make it a feed of f32 or booleans of shape [batch]", where);
    require_new(*mask_, "the mask", where);
    (void)program_.stage(*mask_, 1, Shape{batch_size_}, where);
  }

  std::unique_ptr<LaunchMemory> stage(Launch& launch, const Where& where) override {
    const std::int64_t steps = launch.size();
    auto staged = std::make_unique<StagedFeeds>(program_);
    const std::vector<Part>& parts = launches_.parts();
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const Shape slice = slice_of(parts[p].type.shape, launch.batch_size(), Where());
      staged->slices.push_back(program_.stage(feeds_[p], steps, slice, where));
      const StagedSlices& slices = staged->slices.back();
      std::byte* first = slices.bytes(0).data();
      launch.places.push_back({first, steps > 1 ? slices.bytes(1).data() - first : 0});
    }
    if (mask_) staged->slices.push_back(masks_of(launch, where));
    return staged;
  }

  StagedSlices masks_of(const Launch& launch, const Where& where) {
    StagedSlices mask = program_.stage(*mask_, launch.size(), Shape{launch.batch_size()}, where);
    for (std::int64_t step = 0; step < launch.size(); ++step) {
      const std::int64_t real = launch.batches[static_cast<std::size_t>(step)].real;
      for (std::int64_t row = 0; row < launch.batch_size(); ++row) {
        if (mask.type().dtype == DType::f32) {
          mask.slice<float>(step)[static_cast<std::size_t>(row)] = row < real ? 1.0f : 0.0f;
        } else {
          mask.slice<bool>(step)[static_cast<std::size_t>(row)] = row < real;
        }
      }
    }
    return mask;
  }

  Program& program_;
  const std::optional<Value> mask_;
  std::int64_t batch_size_ = 0, last_batch_ = 0;  // sizes of the first and the last batch of an epoch
  std::vector<Value> feeds_;                      // by Part
  Launches launches_;                             // the last one: its workers end before what they use goes
};

Loader::Loader(Program& program, std::shared_ptr<const Source> source, SampleOrder order,
               std::vector<std::pair<std::string, Value>> feeds, const LoaderOptions& options, Where where)
    : impl_(new Impl(program, std::move(source), std::move(order), std::move(feeds), options, where)) {}
void Loader::Close::operator()(Impl* impl) const noexcept {
  // A child of fork() has neither the threads nor what they waited for: nothing of it can be destroyed there.
  if (!impl->launches().is_in_child()) delete impl;
}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;

std::int64_t Loader::next(Where where) {
  return impl(where).launches().next(std::numeric_limits<std::int64_t>::max(), where);
}
std::int64_t Loader::next(std::int64_t most, Where where) { return impl(where).launches().next(most, where); }
void Loader::set_steps_per_launch(std::int64_t steps, Where where) {
  impl(where).launches().set_steps_per_launch(steps, where);
}
bool Loader::feeds(const Program& program, Where where) const { return impl(where).feeds(program); }
std::int64_t Loader::batches(Where where) const { return impl(where).launches().order().batches(); }
const SampleOrder& Loader::order(Where where) const { return impl(where).launches().order(); }
LoaderPosition Loader::position(Where where) const { return impl(where).launches().position(where); }
void Loader::seek(const LoaderPosition& position, Where where) { impl(where).launches().seek(position, where); }
LoaderReport Loader::report(Where where) const { return impl(where).launches().report(where); }

Loader::Impl& Loader::impl(const Where& where) const {
  if (!impl_) throw Error("Loader", where, "a moved-from Loader", "use the Loader that it was moved to");
  return *impl_;
}
Held LoaderAccess::hold(const Loader& loader, const Where& where) { return loader.impl(where).launches().hold(where); }

double idle_share(const LoaderReport& report) {
  return report.seconds > 0 ? std::min(report.waited_seconds / report.seconds, 1.0) : 0;
}

int workers_to_keep_up(const LoaderReport& report) {
  const double work = report.read_seconds + report.prepared_seconds, steps = report.seconds - report.waited_seconds;
  if (work <= 0) return 1;
  return steps > work / kMostWorkers ? std::max(static_cast<int>(std::ceil(work / steps)), 1) : kMostWorkers;
}

std::string to_string(const LoaderReport& report) {
  const auto share = [](double x) { return number_text(std::round(x * 1000) / 10) + " %"; };
  std::string text =
      std::to_string(report.launches) + " launches with " + std::to_string(report.batches) + " batches of " +
      std::to_string(report.samples) + " samples in " + number_text(report.seconds) + " s\nreading took " +
      number_text(report.read_seconds) + " s, preparing " + number_text(report.prepared_seconds) + " s of " +
      (report.workers == 0 ? "the thread that calls next()" : std::to_string(report.workers) + " workers") +
      "\nthe device was without data for at most " + share(idle_share(report)) + " of the time";
  if (report.workers == 0) {
    text += "\nworkers would read beside the launches";
  } else if (report.launches > 0) {
    text +=
        "; " + std::to_string(report.starved) + " launches were starved, " + std::to_string(report.shrunk) +
        " of them shrunk; " +
        number_text(std::round(10.0 * static_cast<double>(report.ready) / static_cast<double>(report.launches)) / 10) +
        " batches were ready on average";
    if (report.starved * 10 > report.launches) {
      const int more = workers_to_keep_up(report) - report.workers;
      text += report.prepared_seconds > report.read_seconds ? "\npreparing limits: " : "\nreading limits: ";
      text += more > 0 ? std::to_string(more) + " more workers would keep up, if there are cores left"
                       : "more launches ahead would even out what samples take";
    }
  }
  if (!report.obstacle.empty()) text += "\nfewer launches than asked for were ahead: " + report.obstacle;
  return text;
}

}  // namespace graphsink
