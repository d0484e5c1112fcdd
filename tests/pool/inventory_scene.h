#pragma once
// An inventory with one fake source, for tests of the parts that use it.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/pool/fake_world.h"
#include "tools/pool/daemon/inventory.h"

namespace elinvar::pool::test {

// One source with the machines that a test chooses.
class InventoryScene : public testing::Test {
 protected:
  InventoryScene() : inventory_(store_, sources()) {}
  std::vector<NamedSource> sources() {
    auto source = std::make_unique<FakeSource>();
    source_ = source.get();
    std::vector<NamedSource> all;
    all.push_back({"fake", std::move(source)});
    return all;
  }
  bool refresh(double now) {
    inventory_.load();
    return inventory_.refresh(now, /*wanted=*/2, /*grace=*/10);
  }
  std::vector<Id> ids() const {
    std::vector<Id> all;
    for (const auto& [id, slot] : inventory_.slots()) all.push_back(id);
    return all;
  }
  Store store_{":memory:"};
  FakeSource* source_ = nullptr;
  Inventory inventory_;
};

}  // namespace elinvar::pool::test
