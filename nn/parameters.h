#pragma once
// The named parameters and buffers of a network, and Scope, with which layers create them.
//
// A layer is a plain value that holds Vars and creates them in its constructor:
//   struct Linear {
//     Linear(Scope s, int64_t in, int64_t out) : weight(s.parameter("weight", {out, in}, ...)) {}
//   };
//   Linear head(scope / "head", 64, 10);     // parameters "head.weight", "head.bias"
// Initial values are a function of (seed, full name), so they depend neither on the order of construction nor on other
// layers.
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "autograd/var.h"
#include "nn/cut.h"
#include "tensor/base/check.h"
#include "tensor/shard_group.h"
#include "tensor/state.h"

namespace elinvar {

class TouchedRows;

struct Parameter {
  std::string name;
  Var var;
  bool decay = true;  // false: exempt from weight decay
  Cut cut = {};       // how the whole is cut; this is shard `shard` of it, and its name ends in "@<shard>"
  int shard = 0;
  // Fills a tensor of its shape, contiguous float32, with its initial values, as an outline does not.
  std::function<void(Tensor& values)> initialise = {};
  std::shared_ptr<TouchedRows> touched = nullptr;  // of a table that is read by index alone

  bool sparse() const;                                // its gradient and update are those of the touched rows
  std::string whole_name() const;                     // without the shard
  bool computed_here(const ShardGroup& group) const;  // whether it belongs to a virtual shard of this process
};

// State that is not a parameter, such as a batch norm's running statistics. Only the update writes it, no forward pass.
struct Buffer {
  std::string name;
  Tensor value;
};

struct Parameters {
  std::vector<Parameter> list;  // in order of creation: the order of every reduction. Shards of one tensor are adjacent
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::unordered_set<std::string> names;  // of parameters and buffers

  int64_t count() const;  // number of scalars in all parameters
  // Returns views of the tensors by name; writing through them changes the network.
  StateDict state() const;
  void load(const StateDict& state);  // copies; names, shapes and dtypes must match exactly
  // The same of the buffers alone.
  StateDict buffer_state() const;
  void load_buffers(const StateDict& state);
  // Returns the same as state(), with cut parameters joined: copies of these, views of the others.
  StateDict whole_state() const;
  void load_whole(const StateDict& state);  // copies, and cuts
  void move_to(Device device);              // call it before an optimiser or anything else keeps the tensors
};

// Exempts parameters from weight decay, and no others. An entry is
//   "vectors"   every parameter with fewer than two dimensions: biases and the gains of norms
//   a pattern   for full names, with '*' for any run of characters: "wpe.weight", "*.bias", "h.*.ln_*"; a cut parameter
//               has the name of the whole
// Throws SettingError with the key optimizer.exempt (tensor/base/setting.h) for an entry that matches nothing.
void exempt_from_decay(Parameters& parameters, std::span<const std::string> entries);

// Fills `values`, contiguous float32, with initial values from the Philox stream of `key` (nn/initializers.h).
using Initializer = std::function<void(Tensor& values, uint64_t key)>;

// Whether a full name matches a pattern with '*' for any run of characters.
bool name_matches(std::string_view pattern, std::string_view name);

// Thrown for a parameter or buffer whose name is taken, or which is larger than any memory. Readers of configurations
// add the place that requested it (models/kinds.h).
class ParameterError : public UsageError {
 public:
  using UsageError::UsageError;
};

// While an object of this class lives, parameters that this thread creates have names and shapes, but their elements
// are absent (tensor/tensor.h) and buffers take hardly any memory, so that a network can be checked before it is
// allocated, or used without ever being whole in memory (nn/residence.h).
class OutlineScope {
 public:
  OutlineScope();
  ~OutlineScope();
  OutlineScope(const OutlineScope&) = delete;
  OutlineScope& operator=(const OutlineScope&) = delete;
  static bool active();

 private:
  bool before_;
};

class Scope {
 public:
  Scope(Parameters& parameters, uint64_t seed, std::string prefix = "")
      : parameters_(&parameters), seed_(seed), prefix_(std::move(prefix)) {}
  Scope operator/(const std::string& name) const { return {*parameters_, seed_, prefix_ + name + "."}; }
  Scope operator/(int64_t index) const { return *this / std::to_string(index); }

  // Throws ParameterError if the name exists already: two layers would share it by mistake.
  Var parameter(const std::string& name, const Shape& shape, const Initializer& init) const;
  // The same for a table that is read by index alone, which can be sparse (nn/touched_rows.h).
  Var table(const std::string& name, const Shape& shape, const Initializer& init,
            std::shared_ptr<TouchedRows> touched) const;
  // Creates the shards of a parameter whose whole has this shape and these initial values. If there is only one, this
  // is parameter().
  std::vector<Var> shards(const std::string& name, const Shape& shape, const Initializer& init, const Cut& cut) const;
  std::shared_ptr<Buffer> buffer(const std::string& name, const Shape& shape, double value,
                                 DType dtype = DType::f32) const;
  uint64_t key(const std::string& name) const;  // of the initial values of the parameter of this name

 private:
  std::string new_name(const std::string& name, const Shape& shape) const;
  Parameters* parameters_;
  uint64_t seed_;
  std::string prefix_;
};

}  // namespace elinvar
