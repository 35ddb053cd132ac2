package policies_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestPodSecurityDecidesAsKubernetesAboutRandomPods asks about Pods that keep to the level restricted but for a few changes, which Kubernetes' own Pods do
// not combine, in any version.
func TestPodSecurityDecidesAsKubernetesAboutRandomPods(t *testing.T) {
	versions := []string{latest, "v1.99"}
	for minor := range 37 {
		versions = append(versions, fmt.Sprintf("v1.%d", minor))
	}
	c := newComparison(t, versions)
	random := rand.New(rand.NewPCG(1, 2))
	for range 6000 {
		pod := restrictedPod()
		for range random.IntN(4) {
			changes[random.IntN(len(changes))](pod, random)
		}
		c.ask(t, "a random Pod", pick(random, versions...), create(corev1.SchemeGroupVersion, "Pod", "pods", pod), pod)
	}
	c.log(t)
}

// restrictedPod keeps to the level restricted. It has a container of each sort.
func restrictedPod() *corev1.Pod {
	context := func() *corev1.SecurityContext {
		return &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers:     []corev1.Container{{Name: "a", Image: "a", SecurityContext: context()}, {Name: "b", Image: "b", SecurityContext: context()}},
		InitContainers: []corev1.Container{{Name: "c", Image: "c", SecurityContext: context()}},
		EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "d", SecurityContext: context()}},
		},
	}}
}

// changes are ways to change a Pod of restrictedPod, each about the fields of one control.
var changes = []func(*corev1.Pod, *rand.Rand){
	func(p *corev1.Pod, _ *rand.Rand) { p.Spec.HostNetwork = true },
	func(p *corev1.Pod, _ *rand.Rand) { p.Spec.HostPID = true },
	func(p *corev1.Pod, _ *rand.Rand) { p.Spec.HostIPC = true },
	func(p *corev1.Pod, r *rand.Rand) { p.Spec.HostUsers = pick(r, ptr.To(true), ptr.To(false)) },
	func(p *corev1.Pod, r *rand.Rand) { p.Spec.HostUsers = pick(r, ptr.To(true), ptr.To(false)) },
	func(p *corev1.Pod, r *rand.Rand) {
		p.Spec.OS = &corev1.PodOS{Name: pick(r, corev1.Windows, corev1.Linux)}
	},
	func(p *corev1.Pod, r *rand.Rand) {
		p.Spec.OS = &corev1.PodOS{Name: pick(r, corev1.Windows, corev1.Linux)}
	},
	func(p *corev1.Pod, _ *rand.Rand) { p.Spec.SecurityContext = nil },
	func(p *corev1.Pod, r *rand.Rand) { *contextOf(p, r) = corev1.SecurityContext{} },
	func(p *corev1.Pod, r *rand.Rand) { contextOf(p, r).Privileged = pick(r, ptr.To(true), ptr.To(false)) },
	func(p *corev1.Pod, r *rand.Rand) {
		contextOf(p, r).AllowPrivilegeEscalation = pick(r, ptr.To(true), nil)
	},
	func(p *corev1.Pod, r *rand.Rand) {
		contextOf(p, r).Capabilities = &corev1.Capabilities{
			Add:  pick(r, nil, []corev1.Capability{pick(r, capabilities...)}),
			Drop: pick(r, nil, []corev1.Capability{"NET_RAW"}, []corev1.Capability{"NET_RAW", "ALL"}),
		}
	},
	func(p *corev1.Pod, r *rand.Rand) {
		contextOf(p, r).ProcMount = ptr.To(pick(r, corev1.DefaultProcMount, corev1.UnmaskedProcMount))
	},
	func(p *corev1.Pod, r *rand.Rand) { contextOf(p, r).RunAsNonRoot = pick(r, ptr.To(true), ptr.To(false)) },
	func(p *corev1.Pod, r *rand.Rand) {
		podContext(p).RunAsNonRoot = pick(r, ptr.To(true), ptr.To(false), nil)
	},
	func(p *corev1.Pod, r *rand.Rand) { contextOf(p, r).RunAsUser = ptr.To(pick[int64](r, 0, 1)) },
	func(p *corev1.Pod, r *rand.Rand) { podContext(p).RunAsUser = ptr.To(pick[int64](r, 0, 1)) },
	func(p *corev1.Pod, r *rand.Rand) { contextOf(p, r).SeccompProfile = pick(r, seccompProfiles...) },
	func(p *corev1.Pod, r *rand.Rand) { podContext(p).SeccompProfile = pick(r, seccompProfiles...) },
	func(p *corev1.Pod, r *rand.Rand) { contextOf(p, r).AppArmorProfile = pick(r, appArmorProfiles...) },
	func(p *corev1.Pod, r *rand.Rand) { podContext(p).AppArmorProfile = pick(r, appArmorProfiles...) },
	func(p *corev1.Pod, r *rand.Rand) {
		p.Annotations = map[string]string{
			pick(r, "seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/"+pick(r, "a", "b", "c", "d", "e", "")): pick(r,
				"", "runtime/default", "docker/default", "localhost/a", "unconfined", "not-localhost/a", "localhost"),
		}
	},
	func(p *corev1.Pod, r *rand.Rand) {
		p.Annotations = map[string]string{
			pick(r, "container.apparmor.security.beta.kubernetes.io/a", "of.container.apparmor.security.beta.kubernetes.io/a", "other"): pick(r,
				"", "runtime/default", "localhost/a", "unconfined", "not-localhost/a", "localhost"),
		}
	},
	func(p *corev1.Pod, r *rand.Rand) { contextOf(p, r).SELinuxOptions = pick(r, seLinuxOptions...) },
	func(p *corev1.Pod, r *rand.Rand) { podContext(p).SELinuxOptions = pick(r, seLinuxOptions...) },
	func(p *corev1.Pod, r *rand.Rand) {
		contextOf(p, r).WindowsOptions = &corev1.WindowsSecurityContextOptions{HostProcess: pick(r, ptr.To(true), ptr.To(false), nil)}
	},
	func(p *corev1.Pod, r *rand.Rand) {
		podContext(p).WindowsOptions = &corev1.WindowsSecurityContextOptions{HostProcess: pick(r, ptr.To(true), ptr.To(false), nil)}
	},
	func(p *corev1.Pod, r *rand.Rand) {
		podContext(p).Sysctls = append(podContext(p).Sysctls, corev1.Sysctl{Name: pick(r, sysctls...)})
	},
	func(p *corev1.Pod, r *rand.Rand) {
		ports := []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: pick[int32](r, 0, 81)}}
		pick(r, &p.Spec.Containers[1], &p.Spec.InitContainers[0]).Ports = ports
	},
	func(p *corev1.Pod, r *rand.Rand) {
		host := pick(r, "", "example.com")
		probe := &corev1.Probe{ProbeHandler: pick(r,
			corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: host}}, corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: host}})}
		c := pick(r, &p.Spec.Containers[0], &p.Spec.Containers[1])
		*pick(r, &c.LivenessProbe, &c.ReadinessProbe, &c.StartupProbe) = probe
	},
	func(p *corev1.Pod, r *rand.Rand) {
		handler := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: pick(r, "", "example.com")}}
		p.Spec.InitContainers[0].Lifecycle = pick(r, &corev1.Lifecycle{PreStop: handler}, &corev1.Lifecycle{PostStart: handler})
	},
	func(p *corev1.Pod, r *rand.Rand) { p.Spec.Volumes = append(p.Spec.Volumes, volume(r)) },
	func(p *corev1.Pod, r *rand.Rand) { p.Spec.Volumes = append(p.Spec.Volumes, volume(r)) },
}

var (
	capabilities = []corev1.Capability{
		"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
		"SYS_ADMIN", "SYS_CHROOT",
	}
	sysctls = []string{
		"kernel.sem", "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start",
		"net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
		"net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
	}
	seccompProfiles = []*corev1.SeccompProfile{
		nil, {Type: corev1.SeccompProfileTypeUnconfined}, {Type: corev1.SeccompProfileTypeRuntimeDefault}, {Type: corev1.SeccompProfileTypeLocalhost},
	}
	appArmorProfiles = []*corev1.AppArmorProfile{
		nil, {Type: corev1.AppArmorProfileTypeUnconfined}, {Type: corev1.AppArmorProfileTypeRuntimeDefault}, {Type: corev1.AppArmorProfileTypeLocalhost},
	}
	seLinuxOptions = []*corev1.SELinuxOptions{
		{}, {Level: "s0"}, {User: "user_u"}, {Role: "user_r"}, {Type: "spc_t"}, {Type: "container_t"}, {Type: "container_init_t"}, {Type: "container_kvm_t"},
		{Type: "container_engine_t"},
	}
)

// volume is a volume of any type that matters to a control.
func volume(r *rand.Rand) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: pick(r,
		corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}},
		corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}, corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}},
		corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}},
		corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}},
		corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}, corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{}},
	)}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func podContext(p *corev1.Pod) *corev1.PodSecurityContext {
	if p.Spec.SecurityContext == nil {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	return p.Spec.SecurityContext
}

// contextOf is the security context of any container.
func contextOf(p *corev1.Pod, r *rand.Rand) *corev1.SecurityContext {
	return pick(r, p.Spec.Containers[0].SecurityContext, p.Spec.Containers[1].SecurityContext, p.Spec.InitContainers[0].SecurityContext,
		p.Spec.EphemeralContainers[0].SecurityContext)
}
