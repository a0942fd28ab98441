"""Mixed precision with autocast and GradScaler, streams and memory; on the CPU where there is no GPU."""

import time
from contextlib import nullcontext

import wisp as torch
from wisp import Tensor
from wisp.amp import GradScaler, autocast
from wisp.nn.utils import clip_grad_norm_


def make_model(in_size: int, out_size: int, num_layers: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for _ in range(num_layers - 1):
        layers.append(torch.nn.Linear(in_size, in_size))
        layers.append(torch.nn.ReLU())
    layers.append(torch.nn.Linear(in_size, out_size))
    return torch.nn.Sequential(*layers)


def train(device: torch.device, use_amp: bool, data: list[Tensor], targets: list[Tensor]) -> float:
    net = make_model(16, 4, 3).to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    scaler = GradScaler(device.type, enabled=use_amp)
    loss_fn = torch.nn.MSELoss().to(device)
    dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
    loss = torch.zeros(())
    for input, target in zip(data, targets):
        with torch.autocast(device_type=device.type, dtype=dtype, enabled=use_amp):
            output = net(input.to(device, non_blocking=True))
            assert not use_amp or output.dtype is dtype
            loss = loss_fn(output, target.to(device, non_blocking=True))
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        clip_grad_norm_(net.parameters(), max_norm=0.1)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
    return float(loss)


@autocast("cpu", dtype=torch.bfloat16)
def low(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def main() -> None:
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    data = [torch.randn(8, 16) for _ in range(3)]
    targets = [torch.randn(8, 4) for _ in range(3)]
    start = time.time()
    print(train(device, False, data, targets), train(device, True, data, targets))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        print(torch.cuda.get_device_name(0), torch.cuda.max_memory_allocated() / 2**20, torch.cuda.device_count())
        torch.cuda.empty_cache()
        event, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        stream = torch.cuda.Stream()
        event.record()
        with torch.cuda.stream(stream):
            x = torch.ones(4, device="cuda") * 2
        end.record()
        stream.synchronize()
        print(event.elapsed_time(end), x.cpu().numpy())
    with torch.inference_mode(), nullcontext():
        print(low(torch.ones(2, 2), torch.ones(2, 2)).dtype, time.time() - start < 60)
    y = torch.zeros(3, device=device, dtype=torch.float32, pin_memory=False)
    print(y.is_cuda, y.device.type, y.device.index, torch.get_default_dtype())
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.set_num_threads(torch.get_num_threads())


if __name__ == "__main__":
    main()
