#include <dptk/adapters/armadillo.hpp>
#include <dptk/ddp.hpp>

#ifdef MISTAKE
using Matrix = const arma::mat;
#else
using Matrix = arma::mat;
#endif

void train(dptk::ProcessGroup& group, Matrix& weight, arma::mat& gradient) {
    dptk::DistributedDataParallel ddp(group, weight.cols(0, 1), gradient.cols(0, 1));
}
