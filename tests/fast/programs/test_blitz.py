"""What a newcomer types in the first hour, under `wisp run`: tensors, autograd, a network, a classifier of CIFAR pictures.

The four programs go through the same calls as PyTorch's "60 Minute Blitz", with `import torch`, on CIFAR files made here.
"""

import os
import subprocess
import sys

import pytest

import wisp

pytest.importorskip("PIL")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(wisp.__file__)))

TENSORS = """
import torch
import numpy as np
data = [[1, 2], [3, 4]]
x_data = torch.tensor(data)
np_array = np.array(data)
x_np = torch.from_numpy(np_array)
x_ones = torch.ones_like(x_data)
x_rand = torch.rand_like(x_data, dtype=torch.float)
print(f"Ones Tensor: \\n {x_ones} \\n")
shape = (2, 3,)
print(torch.rand(shape), torch.ones(shape), torch.zeros(shape))
tensor = torch.rand(3, 4)
print(f"Shape of tensor: {tensor.shape}")
print(f"Datatype of tensor: {tensor.dtype}")
print(f"Device tensor is stored on: {tensor.device}")
if torch.accelerator.is_available():
    tensor = tensor.to(torch.accelerator.current_accelerator())
if torch.cuda.is_available():
    tensor = tensor.to('cuda')
tensor = torch.ones(4, 4)
tensor[:, 1] = 0
print(tensor)
t1 = torch.cat([tensor, tensor, tensor], dim=1)
assert t1.shape == (4, 12)
print(f"tensor.mul(tensor) \\n {tensor.mul(tensor)} \\n", tensor * tensor)
y1, y2, y3 = tensor @ tensor.T, tensor.matmul(tensor.T), torch.rand_like(tensor)
torch.matmul(tensor, tensor.T, out=y3)
assert torch.equal(y1, y2) and torch.equal(y2, y3)
agg = tensor.sum(); print(agg.item(), type(agg.item()))
tensor.add_(5)
t = torch.ones(5); n = t.numpy(); t.add_(1)
print(f"t: {t}", f"n: {n}")
n = np.ones(5); t = torch.from_numpy(n); np.add(n, 1, out=n)
assert t.tolist() == [2.0] * 5
"""

AUTOGRAD = """
import torch
from torchvision.models import resnet18
torch.manual_seed(0)
model = resnet18(weights=None)
data, labels = torch.rand(1, 3, 64, 64), torch.rand(1, 1000)
prediction = model(data)
loss = (prediction - labels).sum()
loss.backward()
optim = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
optim.step()
a = torch.tensor([2., 3.], requires_grad=True)
b = torch.tensor([6., 4.], requires_grad=True)
Q = 3*a**3 - b**2
external_grad = torch.tensor([1., 1.])
Q.backward(gradient=external_grad)
print(9*a**2 == a.grad)
print(-2*b == b.grad)
x, y = torch.rand(5, 5), torch.rand(5, 5)
z = torch.rand((5, 5), requires_grad=True)
print(f"Does `a` require gradients?: {(x + y).requires_grad}")
print(f"Does `b` require gradients?: {(x + z).requires_grad}")
for param in model.parameters():
    param.requires_grad = False
model.fc = torch.nn.Linear(512, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
x = torch.rand(3, requires_grad=True)
y = torch.norm(x, 2); y.retain_grad(); z = y * y; z.backward()
print(z.grad_fn, x.grad, y.grad)
"""

NETWORK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, input):
        c1 = F.relu(self.conv1(input))
        s2 = F.max_pool2d(c1, (2, 2))
        c3 = F.relu(self.conv2(s2))
        s4 = F.max_pool2d(c3, 2)
        s4 = torch.flatten(s4, 1)
        f5 = F.relu(self.fc1(s4))
        f6 = F.relu(self.fc2(f5))
        return self.fc3(f6)

net = Net()
print(net)
params = list(net.parameters())
print(len(params), params[0].size())
input = torch.randn(1, 1, 32, 32)
out = net(input)
net.zero_grad()
out.backward(torch.randn(1, 10))
output = net(input)
target = torch.randn(10).view(1, -1)
criterion = nn.MSELoss()
loss = criterion(output, target)
print(loss.grad_fn, loss.grad_fn.next_functions[0][0], loss.grad_fn.next_functions[0][0].next_functions[0][0])
net.zero_grad()
print('conv1.bias.grad before backward'); print(net.conv1.bias.grad)
loss.backward()
print('conv1.bias.grad after backward'); print(net.conv1.bias.grad)
learning_rate = 0.01
for f in net.parameters():
    f.data.sub_(f.grad.data * learning_rate)
import torch.optim as optim
optimizer = optim.SGD(net.parameters(), lr=0.01)
optimizer.zero_grad()
loss = criterion(net(input), target)
loss.backward()
optimizer.step()
"""

CIFAR = """
import torch
import torchvision
import torchvision.transforms as transforms
import numpy as np
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])
batch_size = 4
trainset = torchvision.datasets.CIFAR10(root='./data', train=True, download=True, transform=transform)
trainloader = torch.utils.data.DataLoader(trainset, batch_size=batch_size, shuffle=True, num_workers=2)
testset = torchvision.datasets.CIFAR10(root='./data', train=False, download=True, transform=transform)
testloader = torch.utils.data.DataLoader(testset, batch_size=batch_size, shuffle=False, num_workers=2)
classes = ('plane', 'car', 'bird', 'cat', 'deer', 'dog', 'frog', 'horse', 'ship', 'truck')
dataiter = iter(trainloader)
images, labels = next(dataiter)
npimg = (torchvision.utils.make_grid(images) / 2 + 0.5).numpy()
assert np.transpose(npimg, (1, 2, 0)).shape == (36, 138, 3)
print(' '.join(f'{classes[labels[j]]:5s}' for j in range(batch_size)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)

net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for epoch in range(6):
    running_loss = 0.0
    for i, data in enumerate(trainloader, 0):
        inputs, labels = data
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        if i % 20 == 19:
            print(f'[{epoch + 1}, {i + 1:5d}] loss: {running_loss / 20:.3f}')
            running_loss = 0.0
PATH = './cifar_net.pth'
torch.save(net.state_dict(), PATH)
net = Net()
net.load_state_dict(torch.load(PATH, weights_only=True))
correct = total = 0
with torch.no_grad():
    for images, labels in testloader:
        outputs = net(images)
        _, predicted = torch.max(outputs, 1)
        total += labels.size(0)
        correct += (predicted == labels).sum().item()
accuracy = 100 * correct // total
print(f'Accuracy of the network on the test images: {accuracy} %')
assert accuracy >= 80
correct_pred = {classname: 0 for classname in classes}
with torch.no_grad():
    for images, labels in testloader:
        _, predictions = torch.max(net(images), 1)
        for label, prediction in zip(labels, predictions):
            if label == prediction:
                correct_pred[classes[label]] += 1
device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')
print(device)
net.to(device)
del dataiter
"""


def run(tmp_path, text):
    (tmp_path / "blitz.py").write_text(text)
    result = subprocess.run(
        [sys.executable, "-m", "wisp", "run", "blitz.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=dict(os.environ, PYTHONPATH=ROOT),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_tensors(tmp_path):
    out = run(tmp_path, TENSORS)
    assert "torch.float32" in out and "12.0 <class 'float'>" in out and "n: [2. 2. 2. 2. 2.]" in out


def test_autograd(tmp_path):
    out = run(tmp_path, AUTOGRAD)
    assert out.count("tensor([True, True])") == 2 and "`a` require gradients?: False" in out and "<MulBackward0" in out


def test_neural_networks(tmp_path):
    out = run(tmp_path, NETWORK)
    assert "(conv1): Conv2d(1, 6, kernel_size=(5, 5), stride=(1, 1))" in out and "10 torch.Size([6, 1, 5, 5])" in out
    assert "<MseLossBackward0" in out and "before backward\nNone" in out


def test_classifier(tmp_path):
    import numpy
    from cifar import make_cifar

    make_cifar(tmp_path / "data", 60)
    # pictures that can be told apart: the class is the brightness of a stripe
    import pickle

    folder = tmp_path / "data" / "cifar-10-batches-py"
    for path in folder.iterdir():
        if path.name != "batches.meta":
            batch = pickle.loads(path.read_bytes())
            pictures = numpy.random.randint(0, 40, (60, 3, 32, 32), dtype=numpy.uint8)
            for index, label in enumerate(batch[b"labels"]):
                pictures[index, label % 3, 3 * label : 3 * label + 4] = 250
            path.write_bytes(pickle.dumps({b"data": pictures.reshape(60, -1), b"labels": batch[b"labels"]}))
    out = run(tmp_path, CIFAR)
    assert "Accuracy of the network" in out and out.strip().endswith("cpu")
