#include "elastic/session/chaos.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "elastic/step/arrangement.h"
#include "tensor/base/check.h"
#include "tensor/base/spelling.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

const std::vector<std::string> kKinds = {"kill", "stall", "drain", "join", "drop", "flip", "arrange", "random"};
const std::vector<std::string> kFlips = {"leaf", "input", "reduced", "parameter", "optimizer"};
const std::vector<std::string> kPoints = {"forward", "within",  "boundary", "contribute", "sum",
                                          "part",    "trailer", "update",   "value",      "fetch"};
constexpr double kMostSeconds = 3600;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <class T>
bool parse_number(const std::string& text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// The settings of one fault. Each is taken once; a setting that remains is unknown.
class Settings {
 public:
  explicit Settings(const std::string& text) : text_(text) {
    const size_t colon = text.find(':');
    kind_ = text.substr(0, colon);
    check(std::find(kKinds.begin(), kKinds.end(), kind_) != kKinds.end(), "[chaos] '{}': expected {}, got '{}'{}", text,
          "kill, stall, drain, join, drop, flip, arrange or random", kind_, spelling_hint(kind_, kKinds));
    if (colon != std::string::npos) words_ = split(text.substr(colon + 1), ',');
  }

  const std::string& kind() const { return kind_; }
  bool word(const std::string& word) { return std::erase(words_, word) > 0; }
  template <class T>
  T number(const std::string& key, T low, T high, const char* expected) {
    known_.push_back(key);
    const auto found =
        std::find_if(words_.begin(), words_.end(), [&](const auto& word) { return word.starts_with(key + "="); });
    check(found != words_.end(), "[chaos] '{}': expected {}={}, got none", text_, key, expected);
    const std::string value = found->substr(key.size() + 1);
    words_.erase(found);
    T number{};
    check(parse_number(value, number) && number >= low && number <= high, "[chaos] '{}': expected {}={}, got '{}'",
          text_, key, expected, value);
    return number;
  }
  // Returns the index in `words` of a setting's value; null if the setting is absent.
  std::optional<size_t> choice(const std::string& key, const std::vector<std::string>& words) {
    known_.push_back(key);
    const auto found =
        std::find_if(words_.begin(), words_.end(), [&](const auto& word) { return word.starts_with(key + "="); });
    if (found == words_.end()) return std::nullopt;
    const std::string value = found->substr(key.size() + 1);
    words_.erase(found);
    const auto chosen = std::find(words.begin(), words.end(), value);
    check(chosen != words.end(), "[chaos] '{}': expected {} to be one of {}, got '{}'{}", text_, key,
          fmt::join(words, ", "), value, spelling_hint(value, words));
    return static_cast<size_t>(chosen - words.begin());
  }
  std::string rest() { return fmt::format("{}", fmt::join(std::exchange(words_, {}), ",")); }
  void end() const {
    if (words_.empty()) return;
    const std::string key = words_[0].substr(0, words_[0].find('='));
    check(false, "[chaos] '{}': {} has no '{}'{}", text_, kind_, words_[0], spelling_hint(key, known_));
  }

 private:
  std::string text_, kind_;
  std::vector<std::string> words_, known_;
};

Fault parse_fault(Settings& settings) {
  Fault fault;
  const auto kind = std::find(kKinds.begin(), kKinds.end(), settings.kind()) - kKinds.begin();
  fault.what = static_cast<Fault::What>(kind);
  if (fault.what == Fault::What::kill && settings.word("coordinator")) fault.whom = Fault::Whom::coordinator;
  else if (fault.what == Fault::What::kill && settings.word("all")) fault.whom = Fault::Whom::all;
  else if (fault.what != Fault::What::join && fault.what != Fault::What::arrange)
    fault.worker = settings.number<int>("worker", 0, 1 << 30, "ID, 0 for the leader");
  fault.step = settings.number<int64_t>("step", 1, int64_t{1} << 40, "N from 1 on");
  if (fault.what == Fault::What::stall)
    fault.seconds = settings.number<double>("seconds", 0, kMostSeconds, "S from 0 to 3600");
  if (fault.what == Fault::What::arrange) {
    fault.entries = settings.rest();
    Arrangement arrangement;
    (void)read_arrangement(fault.entries, arrangement);
  }
  if (fault.what == Fault::What::flip) {
    fault.bit = settings.number<int64_t>("bit", 0, int64_t{1} << 50, "B from 0 on");
    fault.flips = static_cast<Fault::Flips>(settings.choice("what", kFlips).value_or(0));
  }
  if (fault.what == Fault::What::kill && fault.whom == Fault::Whom::worker)
    if (const auto point = settings.choice("at", kPoints)) fault.at = static_cast<Fault::Point>(*point);
  return fault;
}

// The random numbers of one moment, in the order in which they are drawn.
class Dice {
 public:
  Dice(const RandomFaults& random, const Moment& moment) : random_(random), moment_(moment) {}
  double uniform() {
    const Random4 drawn =
        philox(random_.seed, static_cast<uint32_t>(moment_.number), static_cast<uint32_t>(moment_.number >> 32),
               static_cast<uint32_t>(moment_.what), n_++);
    return uniform01(drawn.v[0]);
  }
  size_t below(size_t n) { return std::min(n - 1, static_cast<size_t>(uniform() * static_cast<double>(n))); }
  // Returns a number whose logarithm is uniform.
  double between(double low, double high) { return low * std::pow(high / low, uniform()); }

 private:
  const RandomFaults& random_;
  Moment moment_;
  uint32_t n_ = 0;
};

}  // namespace

const char* name_of(Fault::What what) { return kKinds[static_cast<size_t>(what)].c_str(); }

const char* name_of(Fault::Flips what) { return kFlips[static_cast<size_t>(what)].c_str(); }

const char* name_of(Fault::Point point) { return kPoints[static_cast<size_t>(point)].c_str(); }

const char* name_of(Moment::What what) {
  constexpr const char* kNames[] = {"step", "checkpoint", "generation", "newcomer"};
  return kNames[static_cast<size_t>(what)];
}

Chaos parse_chaos(const std::string& specification) {
  Chaos chaos;
  for (const std::string& text : split(specification, ';')) {
    Settings settings(text);
    if (settings.kind() == "random") {
      check(!chaos.random, "[chaos] '{}': expected one random, got two", text);
      chaos.random = {.seed = settings.number<uint64_t>("seed", 0, UINT64_MAX, "N"),
                      .rate = settings.number<double>("rate", 0, 1, "P from 0 to 1")};
    } else {
      chaos.faults.push_back(parse_fault(settings));
    }
    settings.end();
  }
  return chaos;
}

bool fault_happens_at(const RandomFaults& random, const Moment& moment) {
  const double chance = moment.what == Moment::What::step ? random.rate : std::min(0.5, 8 * random.rate);
  return Dice(random, moment).uniform() < chance;
}

std::vector<DrawnFault> draw_faults(const RandomFaults& random, const Moment& moment, std::vector<Target> around) {
  constexpr double kAgain = 0.3;  // the chance of one more fault at the same moment
  // The chance that a stall lasts until the other workers, if any, continue without this one.
  constexpr double kLong = 0.1;
  std::vector<DrawnFault> faults;
  Dice dice(random, moment);
  (void)dice.uniform();  // the number that fault_happens_at() draws
  size_t workers = around.size();
  do {
    const auto sound = std::count_if(around.begin(), around.end(), [](const Target& t) { return t.sound; });
    std::vector<size_t> victims, stayers;
    for (size_t i = 0; i < around.size(); ++i) {
      if (!around[i].doomed && (!around[i].sound || sound > 1)) victims.push_back(i);
      if (around[i].sound) stayers.push_back(i);
    }
    std::vector<Fault::What> choices;
    const auto add = [&](Fault::What what, int weight) { choices.insert(choices.end(), weight, what); };
    if (!victims.empty()) add(Fault::What::kill, 4);
    if (!stayers.empty()) add(Fault::What::stall, 2);
    if (stayers.size() > 1) add(Fault::What::drain, 2);
    if (workers < kMostRandomWorkers) add(Fault::What::join, workers <= 2 ? 8 : 3);
    if (choices.empty()) break;
    DrawnFault fault{.what = choices[dice.below(choices.size())], .after = dice.between(20e-6, 20e-3)};
    if (fault.what == Fault::What::join) {
      ++workers;
    } else {
      const std::vector<size_t>& from = fault.what == Fault::What::kill ? victims : stayers;
      fault.target = from[dice.below(from.size())];
      const bool others = sound > 1;
      if (fault.what == Fault::What::stall)
        fault.seconds = dice.uniform() < kLong && others ? dice.between(3.2, 4.5) : dice.between(2e-3, 0.2);
      around[fault.target] = {.sound = false, .doomed = true};
    }
    faults.push_back(fault);
  } while (faults.size() < 3 && dice.uniform() < kAgain);
  return faults;
}

}  // namespace elinvar
