// Machines that come, give notice and go.
#include "tools/pool/daemon/inventory.h"

#include <gtest/gtest.h>

#include "tests/pool/inventory_scene.h"

namespace elinvar::pool {
namespace {

using test::FakeSource;

class PoolInventory : public test::InventoryScene {};

TEST_F(PoolInventory, SlotsKeepTheirNumbersAndNumbersAreNotUsedAgain) {
  EXPECT_FALSE(inventory_.all_sources_answered());
  source_->there = {{.host = "a", .kind = "cuda", .device = "cuda", .slots = 2}};
  EXPECT_TRUE(refresh(1));
  EXPECT_TRUE(inventory_.all_sources_answered());
  EXPECT_EQ(source_->last_wanted, 2);
  const std::vector<Id> first = ids();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(inventory_.find(first[1])->record.device, "cuda:1");
  EXPECT_FALSE(refresh(2)) << "nothing has changed";
  EXPECT_EQ(ids(), first);
  source_->there.clear();
  EXPECT_TRUE(refresh(3));
  EXPECT_TRUE(ids().empty());
  source_->there = {{.host = "a", .kind = "cuda", .device = "cuda", .slots = 1}};
  refresh(4);
  ASSERT_EQ(ids().size(), 1u);
  EXPECT_GT(ids()[0], first[1]);
}

TEST_F(PoolInventory, ASlotOnFileIsConfirmedByItsSource) {
  source_->there = {{.host = "a", .kind = "cpu-1", .device = "cpu"}};
  refresh(1);
  const Id id = ids().at(0);
  Inventory next(store_, sources());
  next.load();
  EXPECT_FALSE(next.find(id)->confirmed);
  source_->silent = true;
  EXPECT_FALSE(next.refresh(2, 0, 10)) << "no news";
  EXPECT_NE(next.find(id), nullptr) << "a source that does not answer takes nothing away";
  source_->silent = false;
  source_->there = {{.host = "a", .kind = "cpu-1", .device = "cpu"}};
  next.refresh(3, 0, 10);
  EXPECT_TRUE(next.find(id)->confirmed);
}

TEST_F(PoolInventory, ANearerEndIsANotice) {
  source_->there = {{.host = "a", .lease = "1", .kind = "cpu-1", .device = "cpu", .until = 1000}};
  refresh(1);
  const Id id = ids().at(0);
  EXPECT_FALSE(inventory_.find(id)->leaving);
  source_->there[0].until = 500;
  EXPECT_TRUE(refresh(2));
  EXPECT_TRUE(inventory_.find(id)->leaving);
  EXPECT_FALSE(refresh(3)) << "it is told once";
  inventory_.release(4, /*idle=*/100, [](Id) { return true; });
  EXPECT_TRUE(source_->released.empty()) << "a worker is there";
  inventory_.release(5, /*idle=*/100, [](Id) { return false; });
  EXPECT_EQ(source_->released, std::set<std::string>{"a"});
}

TEST_F(PoolInventory, IdleMachinesAreGivenBack) {
  source_->there = {{.host = "a", .lease = "1", .kind = "cpu-1", .device = "cpu"}};
  refresh(1);
  const auto nobody = [](Id) { return false; };
  EXPECT_FALSE(inventory_.release(10, 100, nobody));
  EXPECT_TRUE(inventory_.release(25, 100, nobody)) << "it is not used: no more are wanted";
  EXPECT_TRUE(source_->released.empty());
  inventory_.release(111, 100, nobody);
  EXPECT_EQ(source_->released.size(), 1u);
}

}  // namespace
}  // namespace elinvar::pool
