// Checks the table of docs/collectives.md for Gloo.
#include <dptk/comm/gloo/transport.hpp>

#include <map>

#include "support.hpp"
#include "support/verb_table.hpp"

TEST_CASE("docs/collectives.md: the verbs that use Gloo's own collectives are those that the transport has") {
    using Transport = dptk::GlooTransport;
    using namespace dptk::detail;
    const std::map<std::string, bool> own = {{"all_reduce", HasAllReduce<Transport>},
                                             {"reduce", HasReduce<Transport>},
                                             {"broadcast", HasBroadcast<Transport>},
                                             {"all_gather", HasAllGather<Transport>},
                                             {"all_gather_uneven", HasAllGatherUneven<Transport>},
                                             {"gather", HasGather<Transport>},
                                             {"scatter", HasScatter<Transport>},
                                             {"reduce_scatter", HasReduceScatter<Transport>},
                                             {"all_to_all", HasAllToAll<Transport>},
                                             {"all_to_all_uneven", HasAllToAllUneven<Transport>},
                                             {"barrier", HasBarrier<Transport>}};
    for (const test::TableRow& row : test::verb_table()) {
        const bool sixteen_bit = row[0].find("16-bit") != std::string::npos;
        const bool says_own = row[5].starts_with("gloo::");
        CHECK_MESSAGE(says_own == (own.at(row[0].substr(0, row[0].find(','))) && !sixteen_bit), row[0]);
        // A verb without a collective of Gloo works as over send and recv alone.
        if (!says_own) CHECK_MESSAGE(row[5] == row[1], row[0]);
    }
    CHECK_FALSE(Transport::reduces(dptk::DType::bf16, dptk::ReduceOp::sum));
    CHECK(Transport::reduces(dptk::DType::bf16, dptk::ReduceOp::max));
    CHECK(Transport::reduces(dptk::DType::f32, dptk::ReduceOp::sum));
}
